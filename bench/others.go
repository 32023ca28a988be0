package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcd is the mutex of etcd's own client. A session contends once for a lock,
// so each thread has its own session, all of one client.
type etcd struct {
	client   *clientv3.Client
	root     string
	sessions []*concurrency.Session
}

func startEtcd(ctx context.Context, at place) (peer, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{at.address}, DialTimeout: patience, Logger: zap.NewNop(), Context: ctx})
	if err != nil {
		return nil, err
	}
	return &etcd{client: c, root: at.root}, nil
}

func (e *etcd) run(ctx context.Context, w work, d time.Duration) (outcome, error) {
	all := make([]*concurrency.Mutex, w.threads)
	for i := range all {
		if i == len(e.sessions) {
			s, err := concurrency.NewSession(e.client, concurrency.WithTTL(int(session.Seconds())))
			if err != nil {
				return outcome{}, err
			}
			e.sessions = append(e.sessions, s)
		}
		all[i] = concurrency.NewMutex(e.sessions[i], fmt.Sprintf("%s/%d", e.root, i%w.locks))
	}
	return drive(ctx, w, d, func(ctx context.Context, thread, _ int) error {
		if err := all[thread].Lock(ctx); err != nil {
			return err
		}
		return all[thread].Unlock(ctx)
	})
}

func (e *etcd) close() {
	for _, s := range e.sessions {
		_ = s.Close() // the server is stopped next
	}
	_ = e.client.Close()
}

// redisLock is the usual lock on one Redis: a key that is set if absent, and
// expires. It is deleted if it still has the holder's token. A thread that
// finds it taken tries again; there is no line.
type redisLock struct{ client *redis.Client }

var unlock = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

// again is the pause before the next try.
const again = time.Millisecond

var errExpired = errors.New("lock expired while it was held")

func startRedis(_ context.Context, at place) (peer, error) {
	return redisLock{redis.NewClient(&redis.Options{Addr: at.address, PoolSize: 32})}, nil
}

func (l redisLock) run(ctx context.Context, w work, d time.Duration) (outcome, error) {
	return drive(ctx, w, d, func(ctx context.Context, _, lock int) error {
		key, token := fmt.Sprintf("lock:%d", lock), rand.Text()
		for {
			held, err := l.client.SetNX(ctx, key, token, session).Result()
			if err != nil {
				return err
			}
			if held {
				break
			}
			time.Sleep(again)
		}
		n, err := unlock.Run(ctx, l.client, []string{key}, token).Int()
		if err == nil && n != 1 {
			err = errExpired
		}
		return err
	})
}

func (l redisLock) close() { _ = l.client.Close() } // the server is stopped next
