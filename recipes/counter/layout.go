package counter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// Layout is the form of a counter's data.
type Layout int

const (
	// LayoutLong is that of Apache Curator's DistributedAtomicLong: 64 bits, the
	// most significant byte first. No data are 0.
	LayoutLong Layout = iota
	// LayoutCount is that of Apache Curator's SharedCount, and of Kazoo's Counter
	// with support_curator: 32 bits, the most significant byte first.
	LayoutCount
	// LayoutKazoo is that of Kazoo's Counter: decimal text, here of 64 bits. Its
	// counters of floating point numbers are not supported.
	LayoutKazoo
)

var (
	// ErrData is returned when the znode has data that the layout does not know.
	ErrData = errors.New("the data are no counter of this layout")
	// ErrOverflow is returned when the sum needs more bits than the layout has.
	ErrOverflow = errors.New("overflow")
)

// fits reports whether the layout has enough bits for a value.
func (l Layout) fits(value int64) bool { return l != LayoutCount || value == int64(int32(value)) }

func (l Layout) encode(value int64) []byte {
	switch l {
	case LayoutCount:
		return binary.BigEndian.AppendUint32(nil, uint32(value))
	case LayoutKazoo:
		return strconv.AppendInt(nil, value, 10)
	}
	return binary.BigEndian.AppendUint64(nil, uint64(value))
}

// decode returns the value of data, which is initial for those of a new znode.
func (l Layout) decode(data []byte, initial int64) (int64, error) {
	switch {
	case len(data) == 0 && l == LayoutLong:
		return 0, nil
	case len(data) == 0:
		return initial, nil
	case l == LayoutLong && len(data) == 8:
		return int64(binary.BigEndian.Uint64(data)), nil
	case l == LayoutCount && len(data) == 4:
		return int64(int32(binary.BigEndian.Uint32(data))), nil
	case l == LayoutKazoo:
		if value, err := strconv.ParseInt(string(data), 10, 64); err == nil {
			return value, nil
		}
	}
	return 0, fmt.Errorf("%w: %s", ErrData, shown(data))
}

// add returns the sum, unless it needs more bits than there are.
func (l Layout) add(value, delta int64) (int64, error) {
	sum := value + delta
	if (sum > value) != (delta > 0) && delta != 0 || !l.fits(sum) {
		return 0, fmt.Errorf("%w: %d + %d, data %s", ErrOverflow, value, delta, shown(l.encode(value)))
	}
	return sum, nil
}

// shown is data in an error.
func shown(data []byte) string {
	const most = 32
	if len(data) > most {
		return fmt.Sprintf("% x... (%d bytes)", data[:most], len(data))
	}
	return fmt.Sprintf("% x", data)
}
