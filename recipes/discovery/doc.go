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
//     says what is promised. A reconnect does not delete and create it again.
//     After Close has returned nil it does not come back. After an expired
//     session it is created with the data of the latest Update.
//   - An ID that another session has registered is not overwritten. Register
//     waits until that session has ended, and tells why if its context ends
//     first.
//   - Without a connection a [Service] goes on with the instances that it knew
//     last. [Status] says since when. So consumers keep working when ZooKeeper
//     is down. With [cache.WithSnapshot] they also start without it.
//   - A znode that cannot be read as an instance hurts no other: it is logged,
//     and named by Status.
//
// # Znodes
//
// An instance is the znode <path>/<name>/<ID>, whose data are those of
// Curator's JsonInstanceSerializer, byte for byte except for the escapes of
// rare characters and the exponents of floats:
//
//	{"name":"billing","id":"10.0.0.7:8080","address":"10.0.0.7","port":8080,"sslPort":null,
//	"payload":{"@class":"com.acme.Details",…},"registrationTimeUTC":1700000000000,
//	"serviceType":"DYNAMIC","uriSpec":null}
//
// A disabled instance ends with "enabled":false. Other instances leave the key
// out, because old readers refuse it.
//
// # Costs
//
// Registering costs what a presence.Node does: a create and a read in each
// session, and nothing for a reconnect. Each [Service] has a cache, and a watch
// at the server, of its own service alone, unless [WithSharedCache] makes them
// share one of the whole tree. Package cache says what a cache costs.
package discovery
