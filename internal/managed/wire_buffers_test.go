package managed_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// heap returns how many bytes are in use.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Each client kept 3 MB of buffers. It needs room for the largest request that
// it may send, and for the largest answer that it has got.
func TestWhatAClientKeeps(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []framework.Option
		most int // KiB
	}{
		{"by default", nil, 1024 + 64 + 128},
		{"with the smallest requests", []framework.Option{framework.WithMaxRequest(16 << 10)}, 128 + 64 + 128},
		{"with large requests", []framework.Option{framework.WithMaxRequest(4 << 20)}, 4096 + 64 + 128},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				connect(t, ens) // and whatever is made once
				const many = 20
				before := heap()
				for range many {
					c, _ := connect(t, ens, tt.opts...)
					if _, _, err := c.Exists(t.Context(), "/"); err != nil {
						t.Fatal(err)
					}
				}
				each := (heap() - before) / many >> 10
				t.Logf("%d KiB for each client, with what the embedded server keeps for it", each)
				if each > tt.most {
					t.Errorf("%d KiB for each client, want %d at most", each, tt.most)
				}
			})
		})
	}
}

// The buffer for answers begins small, on each connection, and grows to what
// arrives.
func TestAnswersLargerThanTheBuffer(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		writer, _ := connect(t, ens)
		must(t, writer.MakePersistentPath(t.Context(), "/many"))
		data := bytes.Repeat([]byte("0123456789"), 100_000)
		_, err := writer.Create(t.Context(), "/large", data, 0)
		must(t, err)
		const children = 2000 // of 1000 bytes: 2 MB in all
		for i := range children {
			_, err := writer.Create(t.Context(), fmt.Sprintf("/many/%01000d", i), nil, 0)
			must(t, err)
		}
		c, network := connect(t, ens, framework.WithMaxRequest(16<<10))
		for range 3 {
			for range 2 {
				if got, _, err := c.Get(t.Context(), "/large"); err != nil || !bytes.Equal(got, data) {
					t.Fatalf("%d bytes, %v", len(got), err)
				}
				if names, _, err := c.Children(t.Context(), "/many"); err != nil || len(names) != children {
					t.Fatalf("%d names, %v", len(names), err)
				}
			}
			network.Drop()
			time.Sleep(time.Second)
		}
	})
}
