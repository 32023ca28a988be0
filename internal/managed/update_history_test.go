package managed_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

var (
	updateSeed      = flag.Uint64("managed.seed", 0, "of the random histories; 0: a new one")
	updateHistories = flag.Int("managed.histories", 20, "how many random histories of updates are made")
)

// change is an operation in a history.
type change struct {
	what     string
	argument int   // what it adds; of set: the new value
	version  int32 // of set: the expected one
	marker   int
}

// outcome is what a change has returned.
type outcome struct {
	unknown  bool // it was executed some time, or never
	value    int
	version  int32 // after it; -1: it does not know
	repeated bool
	own      bool // it knows that it was executed by this call
}

const changeMarkers = 3

// updated is the state of the model: a znode in one process.
type updated struct {
	value   int
	version int32
	made    [changeMarkers]bool
}

var oneZnode = porcupine.Model{
	Init: func() any { return updated{} },
	Step: func(state, input, output any) (bool, any) {
		z, c, o := state.(updated), input.(change), output.(outcome)
		switch c.what {
		case "get":
			return o.value == z.value && o.version == z.version, z
		case "set":
			if z.version != c.version {
				return o.unknown, z
			}
			z.value = c.argument
		case "update":
			z.value += c.argument
		default: // update once, multi once
			if z.made[c.marker] {
				return o.unknown || !o.own, z
			}
			if o.repeated {
				return false, z
			}
			z.made[c.marker] = true
			if z.value += c.argument; c.what == "multi once" {
				z.value = c.argument
			}
		}
		z.version++
		return o.unknown || o.version == -1 || o.value == z.value && o.version == z.version, z
	},
	Equal: func(a, b any) bool { return a.(updated) == b.(updated) },
}

// Random calls of three processes whose connections drop, whose answers get
// lost, whose sessions expire and whose members lag: all of them together are
// what some order of them, one after the other, would have been.
func TestHistoriesOfUpdates(t *testing.T) {
	bubble.Histories(t, *updateSeed, *updateHistories, oneZnode, func(t *testing.T, w *bubble.World, h *bubble.Recorder, n func(int) int) {
		var clients []*framework.Client
		for range 3 {
			clients = append(clients, w.ConnectNext())
		}
		_, err := clients[0].Create(t.Context(), "/n", []byte("0"), 0)
		must(t, err)
		end := w.Storm(n, clients...)
		var all sync.WaitGroup
		for i, c := range clients {
			for j := range 2 {
				all.Go(func() {
					for range 6 {
						time.Sleep(time.Duration(n(3000)) * time.Millisecond)
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n(60))*time.Second)
						randomChange(ctx, h, c, 2*i+j, n)
						cancel()
					}
				})
			}
		}
		all.Wait()
		end()
		time.Sleep(time.Minute)
		get(t.Context(), h, w.ConnectNext(), 9)
	})
}

// randomChange makes a random call.
func randomChange(ctx context.Context, h *bubble.Recorder, c *framework.Client, client int, n func(int) int) {
	in, unknown := change{argument: 1 + n(100), marker: n(changeMarkers)}, outcome{unknown: true}
	marker, value, fails := fmt.Sprint("/marker-", in.marker), 0, n(8) == 0
	add := func(old []byte, _ *zk.Stat) ([]byte, error) {
		if fails {
			return nil, errors.New("not now")
		}
		before, err := strconv.Atoi(string(old))
		value = before + in.argument
		return strconv.AppendInt(nil, int64(value), 10), err
	}
	once := func(r framework.MultiOnceResult, err error) (any, error) {
		o := outcome{value: value, version: -1, repeated: r.Repeated, own: r.Responses != nil}
		if o.own {
			o.version = r.Responses[0].Stat.Version
		}
		return o, err
	}
	switch n(8) {
	case 0, 1:
		in.what = "update"
		h.Do(client, in, unknown, func() (any, error) {
			stat, err := c.Update(ctx, "/n", add)
			if err != nil {
				return nil, err
			}
			return outcome{value: value, version: stat.Version}, nil
		})
	case 2, 3, 4:
		in.what = "update once"
		h.Do(client, in, unknown, func() (any, error) { return once(c.UpdateOnce(ctx, "/n", marker, add)) })
	case 5:
		in.what, value = "multi once", in.argument
		data := strconv.AppendInt(nil, int64(value), 10)
		h.Do(client, in, unknown, func() (any, error) {
			return once(c.MultiOnce(ctx, marker, nil, &zk.SetDataRequest{Path: "/n", Data: data, Version: -1}))
		})
	default:
		if in.version = get(ctx, h, c, client); in.version < 0 {
			return
		}
		in.what = "set"
		h.Do(client, in, unknown, func() (any, error) {
			stat, err := c.Set(ctx, "/n", strconv.AppendInt(nil, int64(in.argument), 10), in.version)
			if err != nil {
				return nil, err
			}
			return outcome{value: in.argument, version: stat.Version}, nil
		})
	}
}

// get returns the version, or -1.
func get(ctx context.Context, h *bubble.Recorder, c *framework.Client, client int) (version int32) {
	version = -1
	h.Do(client, change{what: "get"}, nil, func() (any, error) {
		err := c.Sync(ctx, "/n")
		if err != nil {
			return nil, err
		}
		data, stat, err := c.Get(ctx, "/n")
		if err != nil {
			return nil, err
		}
		version = stat.Version
		value, err := strconv.Atoi(string(data))
		return outcome{value: value, version: version}, err
	})
	return version
}

// The judge finds what it is for.
func TestBrokenHistoriesOfUpdates(t *testing.T) {
	update := change{what: "update", argument: 1}
	first := porcupine.Operation{Input: update, Call: 1, Output: outcome{value: 1, version: 1}, Return: 2}
	for name, then := range map[string]porcupine.Operation{
		"lost":               {Input: change{what: "get"}, Output: outcome{}},
		"twice":              {Input: change{what: "get"}, Output: outcome{value: 2, version: 2}},
		"overwritten":        {Input: change{what: "update", argument: 2}, Output: outcome{value: 2, version: 2}},
		"repeated at once":   {Input: change{what: "update once", argument: 1}, Output: outcome{version: -1, repeated: true}},
		"at another version": {Input: change{what: "set", argument: 5, version: 0}, Output: outcome{value: 5, version: 2}},
	} {
		then.Call, then.Return = 3, 4
		if porcupine.CheckOperations(oneZnode, []porcupine.Operation{first, then}) {
			t.Errorf("%s: not found", name)
		}
	}
	once := porcupine.Operation{Input: change{what: "update once", argument: 1}, Call: 1, Output: outcome{value: 1, version: 1, own: true}, Return: 2}
	again := porcupine.Operation{Input: once.Input, Call: 3, Output: outcome{value: 2, version: 2, own: true}, Return: 4}
	if porcupine.CheckOperations(oneZnode, []porcupine.Operation{once, again}) {
		t.Error("once, and again: not found")
	}
}
