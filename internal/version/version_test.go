package version_test

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/version"
)

func TestVersion(t *testing.T) {
	first := zk.Stat{Czxid: 5, Mzxid: 7, Ctime: 50, Mtime: 70}
	for name, tt := range map[string]struct {
		before, after       zk.Stat
		data                string // after "a"
		same, isOld, znodes bool   // znodes: it is the same znode
	}{
		"the same":                      {first, first, "a", true, false, true},
		"it was written":                {first, zk.Stat{Czxid: 5, Mzxid: 8, Ctime: 50, Mtime: 80}, "a", false, false, true},
		"it was created again":          {first, zk.Stat{Czxid: 8, Mzxid: 8, Ctime: 80, Mtime: 80}, "a", false, false, false},
		"the same ids, at another time": {first, zk.Stat{Czxid: 5, Mzxid: 7, Ctime: 51, Mtime: 71}, "a", false, false, false},
		"only the write is another one": {first, zk.Stat{Czxid: 5, Mzxid: 7, Ctime: 50, Mtime: 71}, "a", false, false, true},
		"the same times, other ids":     {first, zk.Stat{Czxid: 6, Mzxid: 8, Ctime: 50, Mtime: 70}, "a", false, false, false},
		"other data":                    {first, first, "b", false, false, true},
		"an earlier write":              {first, zk.Stat{Czxid: 5, Mzxid: 6, Ctime: 50, Mtime: 60}, "a", false, true, true},
		"an earlier create":             {first, zk.Stat{Czxid: 4, Mzxid: 9, Ctime: 40, Mtime: 90}, "a", false, true, false},
		"of another member":             {zk.Stat{Mzxid: 3, Mtime: 70}, zk.Stat{Mzxid: 2, Mtime: 71, Version: -1}, "a", true, false, true},
		"of another member, changed":    {zk.Stat{Mtime: 70}, zk.Stat{Mtime: 71}, "b", false, false, true},
	} {
		before, after := version.Of(&tt.before), version.Of(&tt.after)
		if same := after.Is(before, []byte(tt.data), []byte("a")); same != tt.same {
			t.Errorf("%s: the same: %t", name, same)
		}
		if isOld := after.IsBefore(before); isOld != tt.isOld {
			t.Errorf("%s: before: %t", name, isOld)
		}
		if znodes := version.CreatedOf(&tt.after) == version.CreatedOf(&tt.before); znodes != tt.znodes {
			t.Errorf("%s: the same znode: %t", name, znodes)
		}
	}
}
