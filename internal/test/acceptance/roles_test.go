package acceptance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// processMain is their main. Each ends with its input, if not before.
func processMain() {
	var err error
	switch args := os.Args[1:]; os.Getenv(load.Role) {
	case "load", "soak":
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
		fmt.Println("ready")
		f, opts := &load.Figures{}, []framework.Option(nil)
		if os.Getenv(load.Role) == "soak" {
			opts = soakOptions
		}
		err = load.Run(ctx, args[0], args[1], args[2], strconv.Itoa(os.Getpid()), f, opts...)
		if os.Getenv(load.Role) == "soak" && err == nil {
			text, _ := json.Marshal(f)
			fmt.Println("figures", string(text))
		}
	case "holder":
		err = holder(args[0], args[1], args[2], args[3], load.Ledger(args[4]))
	case "neighbor":
		serve(args[0])
	default:
		err = errors.New("no such role")
	}
	load.Main(err)
}

// holder acquires one lock and holds it. It keeps writing its token to the
// resource, guarded, and reports as soon as that fails. Then it sends once more
// what it had prepared while it held, without checking the lease. A line of
// input makes it release, once the resource has its token.
func holder(servers, session, name, path string, file load.Ledger) error {
	timeout, err := time.ParseDuration(session)
	if err != nil {
		return err
	}
	ctx := context.Background()
	c, err := framework.New(servers, framework.WithSessionTimeout(timeout))
	if err != nil {
		return err
	}
	defer c.Close()
	var lock recipes.Acquirer
	mode := load.Exclusive
	for _, k := range kinds {
		if k.name != name {
			continue
		}
		if lock, err = k.make(c, path); err != nil {
			return err
		}
		if !k.tokens {
			mode = load.Permit
		}
	}
	fmt.Println("ready")
	l, err := lock.Acquire(ctx)
	if err != nil {
		return err
	}
	granted := time.Now()
	who := fmt.Sprintf("%d.1", os.Getpid())
	if err := file.Append("in %s %v %s", mode, l.Token(), who); err != nil {
		return err
	}
	write := &zk.SetDataRequest{Path: load.Resource(path), Data: []byte(l.Token().String()), Version: -1}
	prepared := l.Guard(write)
	fmt.Println("held", l.Token(), granted.UnixMilli())
	leave := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		close(leave)
	}()
	var mayLeave <-chan struct{} // leave, after the first write
	for {
		select {
		case <-mayLeave:
			if err := file.Append("out %s", who); err != nil {
				return err
			}
			return l.Release(ctx)
		default:
		}
		// It may hit the end of a connection, and then the outcome is unknown.
		_, err := l.Multi(ctx, write)
		if err != nil && !errors.Is(err, recipes.ErrNotHeld) && !framework.MaybeApplied(err) {
			return fmt.Errorf("a guarded write of a holder: %w", err)
		}
		if err == nil {
			mayLeave = leave
		}
		if !errors.Is(err, recipes.ErrNotHeld) {
			time.Sleep(5 * time.Millisecond) // others work, too
			continue
		}
		select {
		case <-l.Lost():
		case <-time.After(load.Patience):
			return errors.New("the holder does not know that its lease is lost")
		}
		fmt.Println("lost", l.Err())
		// It is sent in the next session, after the last one has ended.
		for began := time.Now(); time.Since(began) < load.Patience; {
			if _, err = c.Multi(ctx, prepared...); err == nil || errors.Is(err, zk.ErrNoNode) {
				break
			}
		}
		fmt.Println("late", errors.Is(err, zk.ErrNoNode), err)
		if err := l.Release(ctx); !errors.Is(err, recipes.ErrNotHeld) {
			return fmt.Errorf("release of a lost lease: %w", err)
		}
		return nil
	}
}
