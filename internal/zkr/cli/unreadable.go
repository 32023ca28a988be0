package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// MayNotRead returns an error if the client may not read some znodes.
func MayNotRead(paths []string) error {
	const enough = 3
	if len(paths) == 0 {
		return nil
	}
	names := strings.Join(paths[:min(enough, len(paths))], ", ")
	if more := len(paths) - enough; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("read %s: %w", names, zk.ErrNoAuth)
}

// OfferUnreadable prints which znodes may not be read, if they are others than
// before. It returns them.
func (p *Printer) OfferUnreadable(before, now []string) []string {
	if len(now) > 0 && !slices.Equal(before, now) {
		p.Offer(fmt.Sprintf("zkr: %s: neither they nor what is below them is printed\n", Plain(MayNotRead(now))))
	}
	return now
}
