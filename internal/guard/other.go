//go:build !linux

package guard

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closing"
)

// Guardians need Linux. This file has what the packages above call elsewhere.

// errUnsupported is the error of whatever needs a guardian.
var errUnsupported = errors.New("guardians need Linux")

func Supported() bool { return false }

type Ward struct{ lost chan struct{} }

func Dial(string) (*Ward, error) { return nil, errUnsupported }

func Start(*exec.Cmd, func(string)) (*Ward, error) { return nil, errUnsupported }

func (w *Ward) Welcomed() error                  { return errUnsupported }
func (w *Ward) Status() Status                   { return Status{} }
func (w *Ward) Guard(framework.DeadSession)      {}
func (w *Ward) Over(framework.DeadSession, bool) {}
func (w *Ward) Lost() <-chan struct{}            { return w.lost }
func (w *Ward) Err() error                       { return errUnsupported }
func (w *Ward) Until(time.Time)                  {}
func (w *Ward) Unlimited()                       {}
func (w *Ward) Starting() Command                { return Command{} }
func (w *Ward) Close() error                     { return nil }
func (w *Ward) CloseIfIdle()                     {}

type Command struct{}

func (Command) Started(int) {}
func (Command) Ended()      {}

type Ensemble struct {
	Servers string
	Closing closing.Ensemble
}

type Config struct {
	Ensembles []Ensemble
	After     time.Duration
	Log       func(text string)
}

func Serve(*net.UnixConn, Config) error { return errUnsupported }

type Listener struct{}

func (*Listener) Close() error { return errUnsupported }

func ServeAll(context.Context, *Listener, Config) error { return errUnsupported }

func Listen(string, int) (*Listener, error) { return nil, errUnsupported }

func Ask(string) (Status, error) { return Status{}, errUnsupported }
