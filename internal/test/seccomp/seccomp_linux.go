// Package seccomp makes the kernel refuse a system call, as older kernels and
// containers do.
package seccomp

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// Call is a system call.
type Call struct {
	Number   uint32
	Argument int    // the one whose lower half is Value
	Value    uint32 // 0: any
}

// SignalGroup is a signal to the group of a pidfd, which Linux can send since
// 6.9.
var SignalGroup = Call{Number: 424, Argument: 3, Value: 1 << 2}

// Refuse makes a call fail with an error, in this process and all that it
// starts from now on. It cannot be undone.
func Refuse(call Call, with syscall.Errno) error {
	type instruction struct {
		code   uint16
		jt, jf uint8
		k      uint32
	}
	const load, equal, ret = 0x20, 0x15, 0x06
	const number, arguments, size = 0, 16, 8 // places in the data of a filter
	program := []instruction{{load, 0, 0, number}, {equal, 0, 1, call.Number}}
	if call.Value != 0 {
		program[1].jf = 3
		program = append(program, instruction{load, 0, 0, uint32(arguments + size*call.Argument)}, instruction{equal, 0, 1, call.Value})
	}
	program = append(program, instruction{ret, 0, 0, 0x00050000 | uint32(with)}, instruction{ret, 0, 0, 0x7fff0000})
	filter := struct {
		n       uint16
		program *instruction
	}{uint16(len(program)), &program[0]}
	const noNewPrivileges, setFilter, ofAllThreads = 38, 1, 1
	if _, _, errno := syscall.Syscall6(syscall.SYS_PRCTL, noNewPrivileges, 1, 0, 0, 0, 0); errno != 0 {
		return os.NewSyscallError("prctl", errno)
	}
	seccomp, known := map[string]uintptr{"amd64": 317, "arm64": 277}[runtime.GOARCH]
	if !known {
		return errors.New("seccomp: no number on " + runtime.GOARCH)
	}
	if _, _, errno := syscall.Syscall(seccomp, setFilter, ofAllThreads, uintptr(unsafe.Pointer(&filter))); errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}
