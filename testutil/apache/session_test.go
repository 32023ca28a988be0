package apache

import (
	"encoding/binary"
	"testing"
)

// TestSessionPassword holds the generator against the numbers that java.util.Random is known to give for the seed 42.
func TestSessionPassword(t *testing.T) {
	password := sessionPassword(42 ^ 0xB3415C00)
	for i, want := range []int32{-1170105035, 234785527, -1360544799, 205897768} {
		if got := int32(binary.LittleEndian.Uint32(password[4*i:])); got != want {
			t.Errorf("number %d = %d, want %d", i, got, want)
		}
	}
}
