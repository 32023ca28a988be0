package cutnet

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
)

// introduction is what a member says first for an election.
func introduction(version int64, addresses string) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(version))
	b = binary.BigEndian.AppendUint64(b, 1)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(addresses))), addresses...)
}

// A member that calls for an election is called back through a relay. All else
// is forwarded as it is.
func TestAnIntroductionNamesARelay(t *testing.T) {
	n := NewRelays()
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	relay := func(address string) string {
		relayed, err := n.Address(1, 0, address)
		if err != nil {
			t.Fatal(err)
		}
		return relayed
	}
	const rest = "and more"
	whole := introduction(-65536, "127.0.0.1:3888")
	for _, test := range []struct {
		name       string
		said, want []byte
	}{
		{"one address", whole, introduction(-65536, relay("127.0.0.1:3888"))},
		{"two addresses", introduction(-65535, "127.0.0.1:3888|127.0.0.1:3889"), introduction(-65535, relay("127.0.0.1:3888")+"|"+relay("127.0.0.1:3889"))},
		{"a client's frame", []byte{0, 0, 0, 44, 0, 0}, []byte{0, 0, 0, 44, 0, 0}},
		{"nothing", nil, nil},
		{"a huge length", append(whole[:16:16], 0x7f, 0xff, 0xff, 0xff), append(whole[:16:16], 0x7f, 0xff, 0xff, 0xff)},
	} {
		heard, err := io.ReadAll(n.introduce(0, 1, bytes.NewReader(append(bytes.Clone(test.said), rest...))))
		if want := string(test.want) + rest; err != nil || string(heard) != want {
			t.Errorf("%s: heard %q, %v, want %q", test.name, heard, err, want)
		}
	}
	for size := range len(whole) { // the end of the connection comes early
		heard, err := io.ReadAll(n.introduce(0, 1, bytes.NewReader(whole[:size])))
		if err != nil || !bytes.Equal(heard, whole[:size]) {
			t.Errorf("%d bytes: heard %q, %v", size, heard, err)
		}
	}
}
