// Package discovery registers instances of services, and finds them, in the
// form of Apache Curator's x-discovery.
//
//	d, err := discovery.New(client, "/services", discovery.JSON[Details]("com.acme.Details"))
//	reg, err := d.Register(ctx, discovery.Instance[Details]{
//		Name: "billing", ID: "10.0.0.7:8080", Address: "10.0.0.7", Port: 8080,
//	})
//	defer reg.Close(ctx)
//
//	billing, err := d.Service("billing")
//	one, err := billing.Pick(ctx)
//	if err := call(one.Address, one.Port); err != nil {
//		one.Failed()
//	}
//
// # What is promised
//
//   - An instance that is registered is a [presence.Node]: package presence
//     says what is promised. While its session lives it is never deleted and
//     created again, and once Close has returned nil it does not come back. Its
//     data after an expiry are those of the latest Update.
//   - An ID that another session has registered is not overwritten. Register
//     waits until that session has ended, and tells why if its context ends
//     first.
//   - A [Service] goes on with the last instances that it knew while there is
//     no connection: [Status] says since when. Losing the registry does not
//     take the services down.
//   - A znode that cannot be read as an instance hurts no other: it is logged,
//     and named by Status.
//
// # Znodes
//
// An instance is the znode <path>/<name>/<ID>, whose data are those of
// Curator's JsonInstanceSerializer, byte for byte except for the escapes of
// rare characters:
//
//	{"name":"billing","id":"10.0.0.7:8080","address":"10.0.0.7","port":8080,"sslPort":null,
//	"payload":{"@class":"com.acme.Details",…},"registrationTimeUTC":1700000000000,
//	"serviceType":"DYNAMIC","uriSpec":null}
//
// An instance that is disabled has "enabled":false at the end. Others have no
// "enabled", which old readers refuse.
//
// # Costs
//
// Registering costs what a presence.Node does: a create and a read in each
// session, and nothing for a reconnect. All Services of a [Discovery] share one
// cache, and one watch at the server: package cache says what that costs.
package discovery
