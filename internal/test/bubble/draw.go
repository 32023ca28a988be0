package bubble

import "os"

// Draw returns how much a test tries of what is random, or of a search that is
// long: a part, or the whole where ZKR_WHOLE is set, as in make processors.
func Draw[N any](part, whole N) N {
	if os.Getenv("ZKR_WHOLE") != "" {
		return whole
	}
	return part
}
