package live

import (
	"errors"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
)

// What the head line says of the servers.
func TestServersText(t *testing.T) {
	now := time.Now()
	up := framework.ServerStatus{Name: "zk1:2181", From: framework.ServerGiven, Connected: "10.0.0.1:2181"}
	other := framework.ServerStatus{Name: "zk2:2181", From: framework.ServerGiven}
	failing := framework.ServerStatus{Name: "zk3:2181", From: framework.ServerGiven, Failure: errors.New("refused"), FailureAt: now.Add(-time.Minute)}
	failed := framework.ServerStatus{Name: "zk4:2181", From: framework.ServerGiven, Failure: errors.New("refused"), FailureAt: now.Add(-time.Hour)}
	removed := framework.ServerStatus{Name: "zk5:2181", From: framework.ServerRemoved, Connected: "zk5:2181"}
	for _, tt := range []struct {
		want string
		all  []framework.ServerStatus
	}{
		{"at zk1:2181 of 1", []framework.ServerStatus{up}},
		{"at zk1:2181 of 3, 1 failing", []framework.ServerStatus{up, other, failing}},
		{"at no server of 2, 1 failing", []framework.ServerStatus{failing, failed}},
		{"at zk5:2181 (removed) of 2", []framework.ServerStatus{other, failed, removed}},
	} {
		if got := serversText(tt.all, now); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
