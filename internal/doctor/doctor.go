// Package doctor asks the servers of an ensemble whether they keep the promises
// that the library builds on. It asks at each address, over raw connections, as
// a client with the same options makes them.
//
//	doctor.go     which questions are asked where, in which order
//	questions.go  the questions
//	ask_*.go      how each is asked
//	conn.go       a connection
//	clean.go      what the doctor has made is removed
package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
)

// Verdict is what the doctor thinks of an answer.
type Verdict string

// The verdicts.
const (
	OK    Verdict = "ok"
	Note  Verdict = "note"  // worth knowing: no promise is broken
	Fails Verdict = "FAILS" // a promise does not hold
)

// Answer is the answer to one question at one address. The JSON names are for
// programs and stay as they are.
type Answer struct {
	Verdict  Verdict `json:"verdict"`
	Address  string  `json:"address"`
	Question string  `json:"question"`
	Seen     string  `json:"seen"`
	Promise  string  `json:"promise"`
	Do       string  `json:"do,omitempty"`
}

// Times within which all is asked, and removed.
const (
	askingTime  = 24 * time.Second
	removalTime = 5 * time.Second
)

// Doctor asks the questions. It is used once.
type Doctor struct {
	ensemble managed.Raw
	slow     bool
	dir      string        // below which all znodes are
	limit    time.Duration // of each request
	probes   []*probe

	mu       sync.Mutex // guards sessions
	sessions map[int64]openSession
}

// openSession is a session that the doctor has opened, and has to close.
type openSession struct {
	at       servers.Server
	password []byte
}

// probe asks at one address.
type probe struct {
	*Doctor
	at    servers.Server
	name  string // the beginning of all paths that it makes
	wrong error  // why there is no address

	reached bool     // the server has said something
	serves  bool     // it gives sessions
	works   bool     // it creates znodes below the directory
	peers   []*probe // where what it creates is seen
}

// New returns a doctor for the ensemble of a client with these options. slow
// adds the questions that take as long as a session's timeout. It returns an
// error for what framework.New refuses.
func New(list string, slow bool, opts ...framework.Option) (*Doctor, error) {
	e, err := managed.NewRaw(list, opts...)
	if err != nil {
		return nil, err
	}
	return &Doctor{
		ensemble: e, slow: slow, sessions: map[int64]openSession{},
		dir:   e.Chroot() + "/zkr-doctor-" + strings.ToLower(rand.Text()),
		limit: min(e.Timeout()/3, 5*time.Second),
	}, nil
}

// Result sums an examination up.
type Result struct {
	Addresses, Reached int      // reached: the server said something
	Fails              []string // questions and addresses
	Notes              int
	Left               error // why something that the doctor has made may be left
}

// Examine asks all questions, and calls tell with each answer, in order. When
// it returns, what it has made is removed. It ends early with ctx.
func (d *Doctor) Examine(ctx context.Context, tell func(Answer)) Result {
	var r Result
	d.ask(ctx, func(a Answer) {
		switch a.Verdict {
		case Fails:
			r.Fails = append(r.Fails, a.Question+" at "+a.Address)
		case Note:
			r.Notes++
		}
		tell(a)
	})
	r.Addresses = len(d.probes)
	for _, p := range d.probes {
		if p.reached {
			r.Reached++
		}
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTime)
	defer cancel()
	r.Left = d.clean(late)
	return r
}

// ask asks the quick questions, one after the other, and then all slow ones at
// once.
func (d *Doctor) ask(ctx context.Context, tell func(Answer)) {
	quick, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	d.resolve(quick)
	hear := func(answers []<-chan Answer) {
		for _, each := range answers {
			if a, ok := <-each; ok && ctx.Err() == nil {
				tell(a)
			}
		}
	}
	for _, q := range questions {
		hear(d.start(quick, q))
	}
	if !d.slow || ctx.Err() != nil {
		return
	}
	patient, cancel := context.WithTimeout(ctx, 3*d.ensemble.Timeout()+sweepTime)
	defer cancel()
	var all []<-chan Answer
	for _, q := range slowQuestions {
		all = append(all, d.start(patient, q)...)
	}
	hear(all)
}

// start asks a question at all addresses at once. A channel is closed without
// an answer if the question makes no sense there.
func (d *Doctor) start(ctx context.Context, q question) []<-chan Answer {
	var all []<-chan Answer
	for _, p := range d.probes {
		answer := make(chan Answer, 1)
		all = append(all, answer)
		if q.needs != nil && !q.needs(p) {
			close(answer)
			continue
		}
		go func() { // ends with ctx, if not before
			defer close(answer)
			within, cancel := context.WithCancel(ctx)
			defer cancel() // closes the connections
			f := q.ask(within, p)
			if ctx.Err() != nil {
				f = fails("not answered in the time that there is")
			}
			if f.verdict == "" {
				return
			}
			a := Answer{Verdict: f.verdict, Address: p.at.Name, Question: q.name, Seen: f.seen, Promise: q.promise}
			if p.at.Address != p.at.Name {
				a.Address += " (" + p.at.Address + ")"
			}
			if a.Do = f.do; a.Do == "" && a.Verdict != OK {
				a.Do = q.do
			}
			answer <- a
		}()
	}
	return all
}

// within returns how long a connection may take.
func (d *Doctor) within(ctx context.Context) time.Duration {
	limit := d.limit
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	return max(limit, time.Millisecond)
}

// resolve finds the addresses. A name without an answer delays no other.
func (d *Doctor) resolve(ctx context.Context) {
	names := d.ensemble.Names()
	found, wrong := make([][]string, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			if found[i], wrong[i] = d.ensemble.Resolve(ctx, name, d.within(ctx)); wrong[i] != nil {
				found[i] = []string{name}
			}
		})
	}
	all.Wait()
	for i, name := range names {
		for _, address := range found[i] {
			p := &probe{Doctor: d, at: servers.Server{Name: name, Address: address}, wrong: wrong[i]}
			p.name = fmt.Sprintf("%s/%d-", d.dir, len(d.probes))
			d.probes = append(d.probes, p)
		}
	}
}
