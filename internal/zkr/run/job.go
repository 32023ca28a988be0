package run

import "os"

// job is a command that runs in a process group of its own.
type job struct {
	ended       chan struct{}         // closed when the command has ended
	code        int                   // its exit code as a shell reports it; read after ended
	interrupted bool                  // Control-C at the terminal has ended it; read after ended
	stopped     chan struct{}         // receives when Control-Z has stopped it, and it was continued
	signal      func(os.Signal) error // passes a signal on; it fails if the job runs as another user, and zkr must not signal it
	kill        func()
}
