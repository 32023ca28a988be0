//go:build !linux

package serve

import "os"

func detach(int) error { return errNoGuardians }

func fileOf(int) (*os.File, error) { return nil, errNoGuardians }
