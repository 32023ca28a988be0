package barrier

import "testing"

// Members of this library that were not late have a tag and a number. Znodes of
// others, whatever their names are, and late ones have not.
func TestCutTag(t *testing.T) {
	const protection = "_c_00112233-4455-6677-8899-aabbccddeeff-"
	for name, want := range map[string]struct {
		tag string
		seq int32
		ok  bool
	}{
		protection + "member-8899aabbccdd-0000000007": {"8899aabbccdd", 7, true},
		protection + "member-8899aabbccdd-2147483647": {"8899aabbccdd", 2147483647, true},
		protection + "member-8899aabbccddx0000000007": {},
		protection + "member-8899aabbccdd":            {},
		protection + "member-8899aabbccdd-":           {},
		protection + "member-":                        {},
		protection + "late":                           {},
		"b9f5a1ce-7e6b-4f9d-9d4c-1d7c2d0f4e11":        {},
		"ready":                                       {},
	} {
		if tag, seq, ok := cutTag(name); ok != want.ok || ok && (tag != want.tag || seq != want.seq) {
			t.Errorf("%s: %q, %d, %v; want %+v", name, tag, seq, ok, want)
		}
	}
}
