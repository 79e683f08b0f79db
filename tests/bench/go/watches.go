// SPDX-License-Identifier: BSL-1.0

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// flood reads t.Count events, and stalls once when some are there.
func flood(client *clientv3.Client, t task) (result, error) {
	changes := client.Watch(ctx, t.Name+"/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-changes
	before := resident()
	cpu := ownCPU()
	if err := passGate(t.Gate); err != nil {
		return nil, err
	}
	const some = 3000
	events := 0
	paused := false
	var revision int64
	for events < t.Count {
		batch, open := <-changes
		if !open || batch.Err() != nil {
			return nil, fmt.Errorf("the watch has ended: %w", batch.Err())
		}
		events += len(batch.Events)
		if n := len(batch.Events); n > 0 {
			revision = batch.Events[n-1].Kv.ModRevision
		}
		if !paused && events > some {
			paused = true
			time.Sleep(time.Duration(t.Stall * float64(time.Second))) // this is what is measured
		}
	}
	return result{
		"ended":    monotonic(),
		"cpu":      ownCPU() - cpu,
		"more_mib": (mostResident() - before) / 1024 / 1024,
		"events":   events,
		"revision": revision,
	}, nil
}

// mostResident tells the most bytes of memory that this process has ever occupied.
func mostResident() float64 {
	text, _ := os.ReadFile("/proc/self/status")
	var kib float64
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	fmt.Sscan(after, &kib)
	return kib * 1024
}

func openSockets() int {
	count := 0
	files, _ := os.ReadDir("/proc/self/fd")
	for _, file := range files {
		target, _ := os.Readlink("/proc/self/fd/" + file.Name())
		if strings.HasPrefix(target, "socket:") {
			count++
		}
	}
	return count
}

// watches are of one key each. Some change these, by turns, and wait for the event.
func watches(client *clientv3.Client, t task) (result, error) {
	writer, err := newClient(t)
	if err != nil {
		return nil, err
	}
	if _, err := writer.Get(ctx, t.Name); err != nil { // it connects
		return nil, err
	}
	r := result{}
	before := openSockets()
	empty := resident()
	began := time.Now()
	changes := make([]clientv3.WatchChan, t.Count)
	key := func(i int) string { return fmt.Sprintf("%s-%d", t.Name, i) }
	const atATime = 16
	all(atATime, func(first int) error {
		for i := first; i < t.Count; i += atATime {
			changes[i] = client.Watch(ctx, key(i), clientv3.WithCreatedNotify())
			<-changes[i]
		}
		return nil
	})
	r["open_s"] = time.Since(began).Seconds()
	r["watch_kib"] = (resident() - empty) / float64(t.Count) / 1024
	r["sockets"] = openSockets() - before
	const changing = 8
	var next [changing]int
	for i := range next {
		next[i] = i
	}
	t.Count = changing
	delivered, err := measurePairs(t, func(i int) error {
		number := next[i]
		next[i] += changing
		if next[i] >= len(changes) {
			next[i] = i
		}
		if _, err := writer.Put(ctx, key(number), "x"); err != nil {
			return err
		}
		if batch := <-changes[number]; len(batch.Events) != 1 {
			return fmt.Errorf("not the event of %s", key(number))
		}
		return nil
	})
	for name, value := range delivered {
		r[name] = value
	}
	return r, err
}
