package child

import (
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"unsafe"
)

// own are the processes that somebody waits for.
var own = struct {
	mu      sync.Mutex // held while one is started: it may end before its id is known
	ids     map[int]bool
	changed chan os.Signal // has room for one
}{ids: map[int]bool{}, changed: make(chan os.Signal, 1)}

// Start starts a command. The caller waits for it, and then calls Ended.
func Start(cmd *exec.Cmd) error {
	own.mu.Lock()
	defer own.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	own.ids[cmd.Process.Pid] = true
	return nil
}

// Ended says that a process that was started by Start was waited for.
func Ended(id int) {
	own.mu.Lock()
	delete(own.ids, id)
	own.mu.Unlock()
	select {
	case own.changed <- syscall.SIGCHLD: // it may have hidden an orphan: see reap
	default:
	}
}

// ReapOrphans reaps what nobody waits for, if this is process 1 of a container:
// the kernel gives it each process whose parent has ended. What Start has
// started is left to its caller.
func ReapOrphans() {
	if os.Getpid() != 1 {
		return
	}
	signal.Notify(own.changed, syscall.SIGCHLD)
	go func() { // ends with the process
		for {
			reap()
			<-own.changed
		}
	}()
}

// reap reaps the orphans that have ended. It stops at a process of Start's:
// until that was waited for, the kernel names no other.
func reap() {
	own.mu.Lock()
	defer own.mu.Unlock()
	for {
		id := ended()
		if id == 0 || own.ids[id] {
			return
		}
		_, _ = syscall.Wait4(id, nil, syscall.WNOHANG, nil)
	}
}

// ended returns the id of a child that has ended and was not waited for, which
// it does not do either. It returns 0 if there is none.
func ended() int {
	const allChildren = 0 // P_ALL
	var info struct {
		_   [3]int32                             // signal, error and code
		_   [unsafe.Sizeof(uintptr(0)) / 8]int32 // aligns what follows
		pid int32
		_   [28]int32
	}
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, allChildren, 0, uintptr(unsafe.Pointer(&info)),
		syscall.WEXITED|syscall.WNOHANG|syscall.WNOWAIT, 0, 0)
	if errno != 0 { // there are no children
		return 0
	}
	return int(info.pid)
}
