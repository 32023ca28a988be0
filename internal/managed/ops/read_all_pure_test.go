package ops

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// How many reads a request has, by what was learned of the sizes of answers.
func TestSizesOfAnswers(t *testing.T) {
	get, list := request.Read{Path: "/a"}, request.Read{Path: "/a", Children: true}
	head := request.OperationHeadSize + wire.StatSize + request.BlobSize(nil)
	type answer struct {
		reads []request.Read
		sizes []int // of the data, or of the only name
	}
	small := func(n int) answer { return answer{slices.Repeat([]request.Read{get}, n), make([]int, n)} }
	for name, test := range map[string]struct {
		learned []answer
		doubled int
		read    request.Read
		want    int // bytes of one answer
	}{
		"nothing is known":               {nil, 0, get, 2048},
		"small data, half believed":      {[]answer{small(32)}, 0, get, (2048 + head) / 2},
		"small twice":                    {[]answer{small(32), small(32)}, 0, get, ((2048+head)/2 + head) / 2},
		"few are not believed":           {[]answer{small(31)}, 0, get, 2048},
		"few, and one more":              {[]answer{small(31), small(1)}, 0, get, (2048 + head) / 2},
		"a few after large data":         {[]answer{{[]request.Read{get}, []int{9000}}, small(1)}, 0, get, (9000 + 2*head) / 2},
		"large data, believed at once":   {[]answer{{[]request.Read{get}, []int{9000}}}, 0, get, 9000 + head},
		"large and small, their average": {[]answer{{[]request.Read{get, get}, []int{9000, 3000}}}, 0, get, 6000 + head},
		"data say nothing of lists":      {[]answer{{[]request.Read{get}, []int{9000}}}, 0, list, 2048},
		"a list":                         {[]answer{{[]request.Read{get, list}, []int{0, 9000}}}, 0, list, 9000 + head + request.TextSize("")},
		"doubled":                        {nil, 1, get, 4096},
		"doubled twice":                  {nil, 2, list, 8192},
		"doubled after large data":       {[]answer{{[]request.Read{get}, []int{9000}}}, 1, get, 2 * (9000 + head)},
		"doubled to the most":            {nil, 10, get, answerTarget},
	} {
		t.Run(name, func(t *testing.T) {
			var s answerSizes
			for _, a := range test.learned {
				// Other reads of the call stand before those of the request.
				reads, results, chunk := []request.Read{list, get}, make([]request.Result, 2), []int(nil)
				for i, r := range a.reads {
					chunk = append(chunk, len(reads))
					found := request.Result{Data: make([]byte, a.sizes[i])}
					if r.Children {
						found = request.Result{Children: []string{strings.Repeat("n", a.sizes[i])}}
					}
					reads, results = append(reads, r), append(results, found)
				}
				s.learn(chunk, reads, results)
			}
			for range test.doubled {
				s.double()
			}
			reads := slices.Repeat([]request.Read{test.read}, 1000)
			all := make([]int, len(reads))
			for i := range all {
				all[i] = i
			}
			if got := s.sum(all[:1], reads); got != test.want {
				t.Errorf("%d bytes, want %d", got, test.want)
			}
			if got := s.sum(all[:3], reads); got != 3*test.want {
				t.Errorf("three of them: %d bytes, want %d", got, 3*test.want)
			}
			if got, want := s.fit(all, reads), min(mostReads, max(1, answerTarget/test.want)); got != want {
				t.Errorf("%d reads in a request, want %d", got, want)
			}
			if got := s.fit(all[:1], reads); got != 1 {
				t.Errorf("%d reads of one", got)
			}
		})
	}
}

// The codes of answers are the errors that the wire client has for them.
func TestErrorsOfCodes(t *testing.T) {
	for code, want := range map[wire.Code]error{
		wire.NoNode: zk.ErrNoNode, wire.NoAuth: zk.ErrNoAuth, wire.SessionExpired: zk.ErrSessionExpired, wire.SessionMoved: zk.ErrSessionMoved,
		wire.AuthFailed: zk.ErrAuthFailed, wire.BadArguments: zk.ErrBadArguments, wire.APIError: zk.ErrAPIError,
	} {
		if err := zkerr.Of(code); !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", code, err, want)
		}
	}
	if err := zkerr.Of(wire.OK); err != nil {
		t.Errorf("OK: %v", err)
	}
	if err := zkerr.Of(wire.Throttled); err == nil || err.Error() != fmt.Sprint("unknown error: ", int32(wire.Throttled)) {
		t.Errorf("throttled: %v", err)
	}
}
