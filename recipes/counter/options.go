package counter

import (
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/least"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

// An Option configures a Counter: those of this package, and of package recipes
// WithACL, for the counter's own znode, and WithLabel. A bad value is an error
// of New.
type Option = option.ForCounter

// setting is an option of New alone.
type setting = option.Counter[config]

type config struct {
	layout  Layout
	initial int64
	age     time.Duration // of markers
	aged    bool          // age was set
	acl     []zk.ACL
	label   string
}

func newConfig(opts []Option) (config, error) {
	cfg := config{age: 24 * time.Hour}
	var shared option.Shared
	var errs []error
	for _, opt := range opts {
		if set, ok := opt.(setting); ok {
			set(&cfg)
		} else if !shared.Set(opt) {
			errs = append(errs, fmt.Errorf("option %T: unknown", opt))
		}
	}
	cfg.acl, cfg.label = shared.ACL, shared.Label
	if cfg.layout < LayoutLong || cfg.layout > LayoutKazoo {
		errs = append(errs, fmt.Errorf("layout %d: unknown", cfg.layout))
	}
	if !cfg.layout.fits(cfg.initial) {
		errs = append(errs, fmt.Errorf("initial value %d: does not fit into 32 bits", cfg.initial))
	}
	errs = append(errs, least.Duration("marker age", cfg.age, time.Second))
	return cfg, oneline.Join(errs...)
}

// WithLayout selects the form of the counter's data. Default LayoutLong.
func WithLayout(l Layout) Option { return setting(func(c *config) { c.layout = l }) }

// WithInitial sets the value that a counter has while its znode is missing, and
// in LayoutCount and LayoutKazoo also while it is empty. All who use the
// counter must agree on it. Default 0.
func WithInitial(value int64) Option { return setting(func(c *config) { c.initial = value }) }

// WithMarkerAge sets how long, at least, AddOnce remembers an id. The longest
// age that any process ever set for this counter applies to all. It is stored
// as the data of <path>-once, such as "24h0m0s". To shorten it, first make sure
// that no process sets a longer age, then write the new one there. An AddOnce
// fails if no answer comes for that time. If it is less than a session timeout,
// one whose answer is lost can count twice. At least 1s. Default: the stored
// age, or a day if none is stored.
func WithMarkerAge(d time.Duration) Option {
	return setting(func(c *config) { c.age, c.aged = d, true })
}
