package cutnet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"unsafe"
)

// The environment variables that tell a process of ours what to do before its
// main: to enter a namespace's network and become another program, or only to
// try whether it can. isolated tells it that its namespace is its own.
const (
	entering = "ZKR_CUTNET_ENTER" // the IP address
	trying   = "ZKR_CUTNET_TRY"
	isolated = "ZKR_CUTNET_ISOLATED"
)

// deviceSocket is the descriptor on which a process that enters hands its
// device over: the first after the standard ones.
const deviceSocket = 3

// Main must be called first in the main of each program that uses [Namespaces].
// It returns, except in a process that such a program has started at a node.
func Main() {
	var err error
	switch {
	case os.Getenv(trying) != "":
		_, err = newDevice("10.77.0.1")
		if err == nil {
			os.Exit(0)
		}
	case os.Getenv(entering) != "":
		err = enter()
	default:
		return
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// enter hands a device of this namespace over, and becomes the program of the
// arguments.
func enter() error {
	device, err := newDevice(os.Getenv(entering))
	if err != nil {
		return err
	}
	rights := syscall.UnixRights(int(device.Fd()))
	if err := syscall.Sendmsg(deviceSocket, []byte{0}, rights, nil, 0); err != nil {
		return fmt.Errorf("cutnet: hand the device over: %w", err)
	}
	syscall.Close(deviceSocket)
	device.Close()
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, entering+"=") {
			env = append(env, variable)
		}
	}
	return fmt.Errorf("cutnet: %s: %w", os.Args[1], syscall.Exec(os.Args[1], os.Args[1:], env))
}

// ownNamespace makes cmd start in a network namespace of its own.
func ownNamespace(cmd *exec.Cmd, variables ...string) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, variables...)
}

func enterNamespace(cmd *exec.Cmd, host string, socket *os.File) error {
	if len(cmd.ExtraFiles) > 0 {
		return errors.New("the command has descriptors of its own")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd.Args = append([]string{self, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = self
	cmd.ExtraFiles = []*os.File{socket}
	ownNamespace(cmd, entering+"="+host)
	return nil
}

// Isolate makes a command, which must be this program, start in a network
// namespace of its own, so that it can call [NewNamespaces].
func Isolate(cmd *exec.Cmd) { ownNamespace(cmd, isolated+"=1") }

// Isolated reports whether this process was started with Isolate.
func Isolated() bool { return os.Getenv(isolated) != "" }

// tryNamespace returns what prevents namespaces, or nil.
func tryNamespace() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	ownNamespace(cmd, trying+"=1")
	text, err := cmd.CombinedOutput()
	if err != nil && len(text) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text)))
	}
	return err
}

// request is the kernel's struct ifreq: a name, and what the request is about.
type request struct {
	name [syscall.IFNAMSIZ]byte
	data [24]byte
}

func control(fd int, what uintptr, name string, data ...byte) error {
	var r request
	copy(r.name[:], name)
	copy(r.data[:], data)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), what, uintptr(unsafe.Pointer(&r)))
	if errno != 0 {
		return errno
	}
	return nil
}

// newDevice makes a TUN device in the namespace of this process, and gives it
// an address. Whatever the process sends to that subnet can be read from the
// file, packet by packet, and what is written there arrives.
func newDevice(host string) (*os.File, error) {
	address, err := checkAddress(host)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cutnet: open /dev/net/tun: %w", err)
	}
	if err := setUp(fd, address); err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("cutnet: set up a device for %s: %w", host, err)
	}
	return os.NewFile(uintptr(fd), "tun"), nil
}

func setUp(fd int, address [4]byte) error {
	// The kernel wants a socket to name the namespace. A thread is in one, and
	// so is everything that it opens.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const name, loopback = "node", "lo"
	flags := func(f uint16) []byte { return native(f) }
	if err := control(fd, syscall.TUNSETIFF, name, flags(syscall.IFF_TUN|syscall.IFF_NO_PI)...); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	inet := func(ip [4]byte) []byte {
		return append(append(native(syscall.AF_INET), 0, 0), ip[:]...) // a sockaddr_in
	}
	up := flags(syscall.IFF_UP | syscall.IFF_RUNNING)
	return errors.Join(
		control(socket, syscall.SIOCSIFFLAGS, loopback, up...),
		control(socket, syscall.SIOCSIFADDR, name, inet(address)...),
		control(socket, syscall.SIOCSIFNETMASK, name, inet([4]byte(net.CIDRMask(24, 32)))...),
		control(socket, syscall.SIOCSIFFLAGS, name, up...),
	)
}

// native returns the bytes of a number in the order of this machine.
func native(n uint16) []byte { return (*[2]byte)(unsafe.Pointer(&n))[:] }

// deviceFile returns the file of a device that another process has opened.
func deviceFile(fd int) (*os.File, error) {
	if err := syscall.SetNonblock(fd, true); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "tun"), nil
}
