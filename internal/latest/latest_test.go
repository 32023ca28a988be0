package latest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/latest"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// number is a value that changes. Until it is known it is 0.
type number struct {
	mu       sync.Mutex // guards what follows
	audience supplied.Audience[struct{}]
	value    int
	over     bool
	loops    int
	left     int
}

func (n *number) set(value int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.value = value
	n.audience.Wake()
}

func (n *number) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	n.audience.Wake()
}

// source looks through one of the two channels of a Look.
func (n *number) source(also bool) func() latest.Source[int, error] {
	return func() latest.Source[int, error] {
		n.loops++
		last := 0
		return latest.Source[int, error]{
			Look: func() latest.Look[int, error] {
				n.mu.Lock()
				defer n.mu.Unlock()
				l := latest.Look[int, error]{Value: n.value, Whole: n.value != 0, Same: n.value == last, Over: n.over}
				if last = n.value; n.over {
					l.Status = errOver
				}
				if also {
					l.Also = n.audience.Changed()
				} else {
					l.Changed = n.audience.Changed()
				}
				return l
			},
			Ended: func(err, why error) error { return errors.Join(why, err) },
			Leave: func() { n.left++ },
		}
	}
}

var errOver = errors.New("over")

// A loop begins with the first whole value, gets the latest one whenever there
// is another, however slow it is, and says at its end what has ended it.
func TestSeq(t *testing.T) {
	type row struct {
		name string
		act  func(n *number, cancel func())
		slow time.Duration // each iteration takes so long
		want string
	}
	after := func(d time.Duration, do func()) { time.Sleep(d); do() }
	for _, tt := range []row{
		{"ended by its context", func(n *number, cancel func()) {
			n.set(1)
			after(time.Second, func() { n.set(2) })
			after(time.Second, cancel)
		}, 0, "1 <nil>, 2 <nil>, 2 context canceled"},
		{"ended by its source", func(n *number, _ func()) {
			n.set(1)
			after(time.Second, n.end)
		}, 0, "1 <nil>, 1 over"},
		{"the same again", func(n *number, _ func()) {
			for range 3 {
				after(time.Second, func() { n.set(1) })
			}
			n.end()
		}, 0, "1 <nil>, 1 over"},
		{"a slow body", func(n *number, _ func()) {
			n.set(1)
			time.Sleep(time.Second / 2) // no two things at the same time
			for i := range 100 {
				after(time.Second, func() { n.set(i + 2) })
			}
			after(time.Hour, n.end)
		}, time.Minute, "1 <nil>, 60 <nil>, 101 <nil>, 101 over"},
		{"all at once during a body", func(n *number, cancel func()) {
			n.set(1)
			after(time.Second, func() { n.set(2); cancel() })
		}, time.Minute, "1 <nil>, 2 context canceled"},
		{"both at once", func(n *number, cancel func()) {
			n.set(1)
			after(time.Second, func() { n.end(); cancel() })
		}, time.Minute, "1 <nil>, 1 over"},
		{"nothing before its context ends", func(_ *number, cancel func()) { cancel() }, 0, ""},
		{"nothing before its source ends", func(n *number, _ func()) { n.end() }, 0, ""},
	} {
		for _, also := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, also), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					n := &number{}
					all := latest.Seq(ctx, n.source(also))
					go func() {
						time.Sleep(time.Millisecond) // the loop waits
						tt.act(n, cancel)
					}()
					var told []string
					for value, err := range all {
						told = append(told, fmt.Sprint(value, " ", err))
						time.Sleep(tt.slow)
					}
					if got := strings.Join(told, ", "); got != tt.want {
						t.Errorf("told %q, want %q", got, tt.want)
					}
					if n.loops != 1 || n.left != 1 {
						t.Errorf("%d loops, of which %d were left", n.loops, n.left)
					}
				})
			})
		}
	}
}

// However the body ends the loop, the source is left, and another loop over the
// same sequence begins again.
func TestLoopsThatAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &number{value: 1}
		all := latest.Seq(t.Context(), n.source(false))
		var got []int
		for name, body := range map[string]func(){
			"a break": func() {
				for value := range all {
					got = append(got, value)
					break
				}
			},
			"a panic": func() {
				defer func() { _ = recover() }()
				for value := range all {
					got = append(got, value)
					panic("body")
				}
			},
			"the end of its goroutine": func() {
				var ended sync.WaitGroup
				ended.Go(func() {
					for value := range all {
						got = append(got, value)
						runtime.Goexit()
					}
				})
				ended.Wait()
			},
		} {
			before := n.left
			body()
			if n.left != before+1 {
				t.Errorf("%s has not left the source", name)
			}
		}
		if !slices.Equal(got, []int{1, 1, 1}) {
			t.Errorf("got %v", got)
		}
	})
}
