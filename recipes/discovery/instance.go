package discovery

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

// Instance is one instance of a service, as its znode says.
type Instance[T any] struct {
	// Name is that of the service, and ID that of the instance in it. Neither may
	// contain a slash. Register makes an ID if it is empty.
	Name, ID string
	// Address is that of the host. If it is empty, Java readers see null.
	Address string
	Port    int // 0: none
	SSLPort int // 0: none
	Payload T
	// Raw is the payload as its JSON text if it is of another class than the
	// codec's: Payload is zero then. If it is set, it is written, and not Payload.
	Raw json.RawMessage
	// Registered is when the instance was registered, in milliseconds. Register
	// sets it if it is zero.
	Registered time.Time
	Type       ServiceType // default: Dynamic
	URISpec    URISpec     // nil: none
	// Disabled keeps the instance from being picked. It is listed all the same.
	Disabled bool
	// LastResort says that the instance has vanished, and is offered for lack of
	// others: see WithLastResort. Register ignores it.
	LastResort bool
}

// ServiceType says what an instance's znode is.
type ServiceType string

const (
	// Dynamic is an ephemeral znode, which stands as long as its owner.
	Dynamic ServiceType = "DYNAMIC"
	// DynamicSequential is one whose name ends in a sequence number: an ID may be
	// there several times.
	DynamicSequential ServiceType = "DYNAMIC_SEQUENTIAL"
	// Static is a persistent znode, which stands until its Registration is closed
	// or somebody deletes it.
	Static ServiceType = "STATIC"
	// Permanent is the same as Static.
	Permanent ServiceType = "PERMANENT"
)

// validate returns an error for an instance that cannot be registered.
func (i Instance[T]) validate() error {
	err := oneline.Join(validName("name", i.Name), validName("ID", i.ID))
	for _, port := range []int{i.Port, i.SSLPort} {
		if port < 0 || port > 65535 {
			err = oneline.Join(err, fmt.Errorf("port %d: not from 0 to 65535", port))
		}
	}
	switch i.Type {
	case Dynamic, DynamicSequential, Static, Permanent:
	default:
		err = oneline.Join(err, fmt.Errorf("type %q: unknown", i.Type))
	}
	return err
}

// validName returns an error for what cannot be the name of a znode.
func validName(what, name string) error {
	if dir, _ := layout.Split("/" + name); name == "" || dir != "/" {
		return fmt.Errorf("%s %q: empty, or with a slash", what, name)
	}
	if err := framework.ValidatePath("/" + name); err != nil {
		return fmt.Errorf("%s %q: %w", what, name, err)
	}
	return nil
}
