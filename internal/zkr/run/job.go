package run

import (
	"os"

	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// job is a command that runs in a process group of its own.
type job struct {
	ended       chan struct{}         // closed when the command has ended
	code        int                   // its exit code as a shell reports it; read after ended
	interrupted bool                  // Control-C at the terminal has ended it; read after ended
	stopped     chan struct{}         // receives when Control-Z has stopped it, and it was continued
	signal      func(os.Signal) error // passes a signal on; it fails if the job runs as another user, and zkr must not signal it
	kill        func()
}

// exit returns the exit of a job that has ended, nil if its code is 0.
func (j *job) exit() error {
	if j.code == 0 {
		return nil
	}
	return &cli.Exit{Code: j.code}
}
