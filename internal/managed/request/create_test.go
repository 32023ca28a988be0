package request_test

import (
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// What a create can have made, by what was asked for.
func TestCheckMade(t *testing.T) {
	for _, tt := range []struct {
		flags int32
		made  string
		ok    bool
	}{
		{zk.FlagPersistent, "/a", true},
		{zk.FlagEphemeral, "/a", true},
		{zk.FlagEphemeral, "/a0000000001", false},
		{zk.FlagEphemeral, "/b", false},
		{zk.FlagContainer, "/a", true},
		{zk.FlagTTL, "/a", true},
		{zk.FlagTTL, "/a0000000001", false},
		{zk.FlagSequence, "/a0000000001", true},
		{zk.FlagSequence, "/a", false},
		{zk.FlagSequence, "/b0000000001", false},
		{zk.FlagSequence | zk.FlagEphemeral, "/a0000000001", true},
		{zk.FlagPersistentSequentialWithTTL, "/a0000000001", true},
		{zk.FlagPersistentSequentialWithTTL, "/a", false},
	} {
		err := request.CheckMade("/a", tt.made, tt.flags)
		if (err == nil) != tt.ok || err != nil && (zkerr.Classify(err) != zkerr.Ambiguous || !errors.Is(err, zkerr.Malformed)) {
			t.Errorf("flags %d, made %s: %v", tt.flags, tt.made, err)
		}
	}
}
