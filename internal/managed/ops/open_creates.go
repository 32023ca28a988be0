package ops

import (
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// openCreates are the creates of ephemeral znodes in a session that have no
// answer, by path. An ephemeral znode of the session is known to be that of a
// create only if no other one was open at the same time. One whose answer was
// lost stays open until a look behind a sync has shown what it did, or until
// the end of the session. Names that only one create can have are not counted.
type openCreates struct {
	mu sync.Mutex // guards what follows
	at map[string]*openCreate
}

type openCreate struct {
	count   int
	several bool // were open at a time, since there were none
}

// begin notes creates that are about to be sent. end gets the error of the
// answer. Only the first call of it counts.
func (o *openCreates) begin(paths ...string) (end func(error)) {
	if len(paths) == 0 {
		return func(error) {}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, path := range paths {
		c := o.at[path]
		if c == nil {
			c = &openCreate{}
			if o.at == nil {
				o.at = make(map[string]*openCreate)
			}
			o.at[path] = c
		}
		c.count++
		c.several = c.several || c.count > 1
	}
	var once sync.Once
	return func(err error) {
		once.Do(func() {
			if !isLost(err) {
				for _, path := range paths {
					o.resolve(path)
				}
			}
		})
	}
}

// resolve notes that it is known what a create has done, and reports whether
// another one may have made the znode.
func (o *openCreates) resolve(path string) (several bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.at[path]
	if c == nil {
		return false
	}
	if c.count--; c.count == 0 {
		delete(o.at, path)
	}
	return c.several
}

// BeginCreates notes creates of ephemeral znodes at fixed paths that are about
// to be sent: see openCreates. end must be called with the error of the answer.
func (s *Session) BeginCreates(paths ...string) (end func(error)) {
	return s.creates.begin(paths...)
}

// Multi is request.Multi in this session, with its creates noted.
func (s *Session) Multi(ops []any) ([]zk.MultiResponse, error) {
	var paths []string
	for _, op := range ops {
		if create, ok := op.(*zk.CreateRequest); ok {
			paths = append(paths, ephemeralAt(create.Path, create.Flags)...)
		}
	}
	end := s.creates.begin(paths...)
	responses, err := request.Multi(s.Conn(), ops)
	end(err)
	return responses, err
}

// ephemeralAt returns the path of an ephemeral znode that a create with these
// flags makes there, and nothing if it makes another one.
func ephemeralAt(path string, flags int32) []string {
	if IsEphemeral(flags) && !request.IsSequential(flags) {
		return []string{path}
	}
	return nil
}
