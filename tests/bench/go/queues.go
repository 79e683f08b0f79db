// SPDX-License-Identifier: BSL-1.0

package main

import (
	"sort"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
)

// queue fills a queue, and lets 8 consumers drain it, each with a Queue of its own.
func queue(client *clientv3.Client, t task) (result, error) {
	const consumers = 8
	value := strings.Repeat("x", 100)
	err := all(64, func(first int) (err error) {
		q := recipe.NewQueue(client, t.Name)
		for i := first; i < t.Count && err == nil; i += 64 {
			err = q.Enqueue(value)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var access sync.Mutex
	var ends []time.Time
	var each []time.Duration
	taken := 0
	measured := begin(t.Server)
	until := measured.began.Add(t.duration())
	// Dequeue waits where there is none, so each is counted before it is taken.
	more := func() bool {
		access.Lock()
		defer access.Unlock()
		taken++
		return taken <= t.Count && time.Now().Before(until)
	}
	err = all(consumers, func(int) error {
		q := recipe.NewQueue(client, t.Name)
		for more() {
			began := time.Now()
			if _, err := q.Dequeue(); err != nil {
				return err
			}
			access.Lock()
			ends = append(ends, time.Now())
			each = append(each, time.Since(began))
			access.Unlock()
		}
		return nil
	})
	r := result{}
	n := len(ends)
	measured.perOperation(r, float64(n))
	sort.Slice(ends, func(i, j int) bool { return ends[i].Before(ends[j]) })
	slice := min(t.Slice, n/2)
	rate := func(from time.Time, count int, to time.Time) float64 {
		return float64(count) / to.Sub(from).Seconds()
	}
	r["operations"] = n
	r["first_rate"] = rate(measured.began, slice, ends[slice-1])
	r["last_rate"] = rate(ends[n-slice-1], slice, ends[n-1])
	r["p50_ms"] = millisecondsAt(each, 0.5)
	r["p99_ms"] = millisecondsAt(each, 0.99)
	return r, err
}
