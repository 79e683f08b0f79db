// SPDX-License-Identifier: BSL-1.0

// Command bench does with etcd's Go client what the C++ program of this name does with coetcd: one
// task, the JSON object on its command line. It prints what it has measured as a line of JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

type task struct {
	Case    string
	URL     string
	Name    string
	Gate    string
	Server  int
	Count   int
	Slice   int
	Seconds float64
	TTL     int
	Stall   float64
	Hold    float64
}

type result map[string]any

func (t task) duration() time.Duration {
	return time.Duration(t.Seconds * float64(time.Second))
}

var ctx = context.Background()

var cases = map[string]func(*clientv3.Client, task) (result, error){
	"uncontended": uncontended,
	"with-lock":   uncontended,
	"in-turn":     inTurn,
	"one-name":    oneName,
	"hand-over":   handOver,
	"puts":        puts,
	// It sends all of them on one connection in any case.
	"puts-combined":    puts,
	"guarded-combined": guardedWrites,
	"waiters":          waiters,
	"sessions":         sessions,
	"queue":            queue,
	"flood":            flood,
	"watches":          watches,
}

func work(text string) (result, error) {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return nil, err
	}
	run := cases[t.Case]
	if run == nil {
		return nil, fmt.Errorf("no case %q", t.Case)
	}
	client, err := newClient(t)
	if err != nil {
		return nil, err
	}
	return run(client, t)
}

func newClient(t task) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:   strings.Split(t.URL, ","),
		DialTimeout: 10 * time.Second,
		Logger:      zap.NewNop(),
	})
}

func tell(r result) {
	out := bufio.NewWriter(os.Stdout)
	if err := json.NewEncoder(out).Encode(r); err != nil {
		panic(err)
	}
	out.Flush()
}

// passGate tells that this process is ready, and waits until the gate, a FIFO, is opened for all.
func passGate(gate string) error {
	if gate == "" {
		return nil
	}
	file, err := os.Open(gate)
	if err != nil {
		return err
	}
	defer file.Close()
	tell(result{"ready": true})
	file.Read(make([]byte, 1))
	return nil
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "go.etcd.io/etcd/client/v3" {
			return module.Version + ", " + info.GoVersion
		}
	}
	return "of unknown version"
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: bench TASK")
		os.Exit(2)
	}
	if os.Args[1] == "--version" {
		fmt.Println("Go client", version())
		return
	}
	r, err := work(os.Args[1])
	if err != nil {
		tell(result{"error": err.Error()})
		os.Exit(1)
	}
	tell(r)
}
