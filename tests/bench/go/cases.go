// SPDX-License-Identifier: BSL-1.0

package main

import (
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// all runs n functions at once, and returns the first error.
func all(n int, f func(i int) error) error {
	failures := make(chan error, n)
	for i := range n {
		go func() { failures <- f(i) }()
	}
	var first error
	for range n {
		if err := <-failures; err != nil && first == nil {
			first = err
		}
	}
	return first
}

func openAll(client *clientv3.Client, ttl, count, atATime int) ([]*concurrency.Session, error) {
	sessions := make([]*concurrency.Session, count)
	err := all(atATime, func(first int) (err error) {
		for i := first; i < count && err == nil; i += atATime {
			sessions[i], err = concurrency.NewSession(client, concurrency.WithTTL(ttl))
		}
		return err
	})
	return sessions, err
}

// measurePairs tells how often contenders can take and give back a lock. Each does it once before.
func measurePairs(t task, pair func(contender int) error) (result, error) {
	if err := all(t.Count, pair); err != nil {
		return nil, err
	}
	each := make([][]time.Duration, t.Count)
	measured := begin(t.Server)
	until := time.Now().Add(t.duration())
	err := all(t.Count, func(i int) error {
		for began := time.Now(); began.Before(until); {
			if err := pair(i); err != nil {
				return err
			}
			ended := time.Now()
			each[i] = append(each[i], ended.Sub(began))
			began = ended
		}
		return nil
	})
	r := result{}
	n := 0
	for _, some := range each {
		n += len(some)
	}
	measured.perOperation(r, float64(n))
	r["operations"] = n
	var together []time.Duration
	for _, some := range each {
		together = append(together, some...)
	}
	r["p50_ms"] = millisecondsAt(together, 0.5)
	r["p99_ms"] = millisecondsAt(together, 0.99)
	return r, err
}

func lockAndUnlock(m *concurrency.Mutex) error {
	if err := m.Lock(ctx); err != nil {
		return err
	}
	return m.Unlock(ctx)
}

func namedMutexes(session *concurrency.Session, t task) []*concurrency.Mutex {
	var mutexes []*concurrency.Mutex
	for i := range t.Count {
		mutexes = append(mutexes, concurrency.NewMutex(session, fmt.Sprintf("%s-%d", t.Name, i)))
	}
	return mutexes
}

// measureMutexes gives each coroutine a mutex of its own, all of one session.
func measureMutexes(
	client *clientv3.Client, t task, do func(i int, m *concurrency.Mutex) error,
) (result, error) {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(t.TTL))
	if err != nil {
		return nil, err
	}
	defer session.Close()
	mutexes := namedMutexes(session, t)
	return measurePairs(t, func(i int) error { return do(i, mutexes[i]) })
}

func uncontended(client *clientv3.Client, t task) (result, error) {
	return measureMutexes(client, t, func(_ int, m *concurrency.Mutex) error {
		return lockAndUnlock(m)
	})
}

// inTurn takes several names, one after the other.
func inTurn(client *clientv3.Client, t task) (result, error) {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(t.TTL))
	if err != nil {
		return nil, err
	}
	defer session.Close()
	mutexes := namedMutexes(session, t)
	taken := 0
	one := t
	one.Count = 1
	return measurePairs(one, func(int) error {
		m := mutexes[taken%len(mutexes)]
		taken++
		return lockAndUnlock(m)
	})
}

// oneName has a mutex of Go around that of etcd: two of those in one session do not exclude each
// other.
func oneName(client *clientv3.Client, t task) (result, error) {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(t.TTL))
	if err != nil {
		return nil, err
	}
	defer session.Close()
	m := concurrency.NewMutex(session, t.Name)
	var here sync.Mutex
	return measurePairs(t, func(int) error {
		here.Lock()
		defer here.Unlock()
		return lockAndUnlock(m)
	})
}

func puts(client *clientv3.Client, t task) (result, error) {
	return measurePairs(t, func(i int) error {
		_, err := client.Put(ctx, fmt.Sprintf("%s-%d", t.Name, i), "v")
		return err
	})
}

func guardedWrites(client *clientv3.Client, t task) (result, error) {
	return measureMutexes(client, t, func(i int, m *concurrency.Mutex) error {
		if err := m.Lock(ctx); err != nil {
			return err
		}
		put := clientv3.OpPut(fmt.Sprintf("%s-%d-data", t.Name, i), "v")
		written, err := client.Txn(ctx).If(m.IsOwner()).Then(put).Commit()
		if err != nil {
			return err
		}
		if !written.Succeeded {
			return fmt.Errorf("a lock was lost: %s", m.Key())
		}
		return m.Unlock(ctx)
	})
}

func handOver(client *clientv3.Client, t task) (result, error) {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(t.TTL))
	if err != nil {
		return nil, err
	}
	defer session.Close()
	m := concurrency.NewMutex(session, t.Name)
	if err := passGate(t.Gate); err != nil {
		return nil, err
	}
	ownerships := [][2]int64{}
	cpu := ownCPU()
	for began := time.Now(); time.Since(began) < t.duration(); {
		if err := m.Lock(ctx); err != nil {
			return nil, err
		}
		taken := monotonic()
		time.Sleep(time.Duration(t.Hold * float64(time.Second)))
		ownerships = append(ownerships, [2]int64{taken, monotonic()})
		if err := m.Unlock(ctx); err != nil {
			return nil, err
		}
	}
	return result{"cpu": ownCPU() - cpu, "ownerships": ownerships}, nil
}

// waiters each have a session of their own: one session takes a lock once only.
func waiters(client *clientv3.Client, t task) (result, error) {
	holder, err := concurrency.NewSession(client, concurrency.WithTTL(t.TTL))
	if err != nil {
		return nil, err
	}
	held := concurrency.NewMutex(holder, t.Name)
	if err := held.Lock(ctx); err != nil {
		return nil, err
	}
	other, err := newClient(t)
	if err != nil {
		return nil, err
	}
	changes := other.Watch(ctx, t.Name+"/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-changes
	r := result{}
	empty := resident()
	sessions, err := openAll(client, t.TTL, t.Count, 16)
	if err != nil {
		return nil, err
	}
	var mutex sync.Mutex
	var handOvers []time.Duration
	var lastRelease time.Time
	ends := make(chan error, 1)
	go func() {
		ends <- all(t.Count, func(i int) error {
			m := concurrency.NewMutex(sessions[i], t.Name)
			if err := m.Lock(ctx); err != nil {
				return err
			}
			mutex.Lock()
			handOvers = append(handOvers, time.Since(lastRelease))
			lastRelease = time.Now()
			mutex.Unlock()
			return m.Unlock(ctx)
		})
	}()
	for entered := 0; entered < t.Count; {
		for _, event := range (<-changes).Events {
			if event.IsCreate() {
				entered++
			}
		}
	}
	n := float64(t.Count)
	r["waiter_kib"] = (resident() - empty) / n / 1024
	waiting := begin(t.Server)
	time.Sleep(t.duration()) // this is what is measured
	waiting.share(r)
	draining := begin(t.Server)
	lastRelease = time.Now()
	if err := held.Unlock(ctx); err != nil {
		return nil, err
	}
	if err := <-ends; err != nil {
		return nil, err
	}
	draining.perOperation(r, n)
	r["drain_s"] = draining.seconds()
	r["p50_ms"] = millisecondsAt(handOvers, 0.5)
	r["p99_ms"] = millisecondsAt(handOvers, 0.99)
	r["lost"] = 0
	return r, nil
}

func sessions(client *clientv3.Client, t task) (result, error) {
	r := result{}
	empty := resident()
	opening := begin(t.Server)
	sessions, err := openAll(client, t.TTL, t.Count, max(t.Slice, 16))
	if err != nil {
		return nil, err
	}
	r["open_s"] = opening.seconds()
	n := float64(t.Count)
	r["session_kib"] = (resident() - empty) / n / 1024
	renewing := begin(t.Server)
	time.Sleep(t.duration()) // this is what is measured
	renewing.share(r)
	renewals := n * renewing.seconds() * 3 / float64(t.TTL)
	r["client_us"] = renewing.clientCPU() * 1e6 / renewals
	r["server_us"] = renewing.serverCPU() * 1e6 / renewals
	lost := 0
	for _, s := range sessions {
		select {
		case <-s.Done():
			lost++
		default:
		}
	}
	r["lost"] = lost
	return r, nil
}
