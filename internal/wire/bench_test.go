package wire_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// BenchmarkCodec encodes and decodes common messages, and the answer to a list
// of a thousand names.
func BenchmarkCodec(b *testing.B) {
	line := &wire.ChildrenResponse{HasStat: true}
	for i := range 1000 {
		line.Children = append(line.Children, fmt.Sprintf("_c_01234567-89ab-cdef-0123-456789abcdef-lock-%010d", i))
	}
	for _, bench := range []struct {
		name string
		out  wire.Message
		in   wire.Message
	}{
		{"create", &wire.CreateRequest{Path: "/locks/report/_c_01234567-89ab-cdef-0123-456789abcdef-lock-", ACL: acls, Mode: 3}, &wire.CreateRequest{}},
		{"created", &wire.PathResponse{Path: "/locks/report/_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000001"}, &wire.PathResponse{}},
		{"children", &wire.ChildrenResponse{Children: []string{"a", "b"}, Stat: stat, HasStat: true}, &wire.ChildrenResponse{HasStat: true}},
		{"thousand children", line, &wire.ChildrenResponse{HasStat: true}},
	} {
		b.Run(bench.name+"/encode", func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				buf = wire.AppendFrame(buf[:0], bench.out)
			}
			b.SetBytes(int64(len(buf)))
		})
		b.Run(bench.name+"/decode", func(b *testing.B) {
			frame := wire.AppendFrame(nil, bench.out)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				payload, err := wire.ReadFrame(bytes.NewReader(frame), wire.MaxFrame, buf)
				if err != nil {
					b.Fatal(err)
				}
				if err := wire.Unmarshal(payload, bench.in); err != nil {
					b.Fatal(err)
				}
				buf = payload
			}
		})
	}
}
