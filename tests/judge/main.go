// SPDX-License-Identifier: BSL-1.0

// Command judge tells whether what clients saw of locks can have happened: it reads their calls,
// with the times at which these began and ended, from a file that support::history wrote, and looks
// for an order of them that agrees with the times and with what models.go allows.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A call is one object of JSON a line. A line without a result is written as the call begins, and
// the other one, of the same id, as it ends: a client that dies leaves the first only.
type call struct {
	ID      string            `json:"id"`
	Process string            `json:"process"`
	Call    int64             `json:"call"`             // nanoseconds of a clock that all share
	Return  int64             `json:"return,omitempty"` // of the same clock
	Object  string            `json:"object"`           // its kind: see models
	Name    string            `json:"name"`
	Op      string            `json:"op"`               // see the models
	Result  string            `json:"result,omitempty"` // yes, no or unknown
	Token   int64             `json:"token,omitempty"`
	Shared  bool              `json:"shared,omitempty"` // of a shared_mutex: reading
	Amount  int64             `json:"amount,omitempty"` // a weight, a limit, a number
	Value   string            `json:"value,omitempty"`
	Reads   map[string]string `json:"reads,omitempty"` // no such key: ""
	Writes  map[string]string `json:"writes,omitempty"`
	Events  []change          `json:"events,omitempty"`
}

func (c call) String() string {
	text, _ := json.Marshal(c)
	if len(text) > 1000 {
		return string(text[:1000]) + "..."
	}
	return string(text)
}

const forever = math.MaxInt64

func parse(lines *bufio.Scanner) ([]call, error) {
	lines.Buffer(nil, 1<<24)
	var all []call
	begun := map[string]int{}
	for n := 1; lines.Scan(); n++ {
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.DisallowUnknownFields()
		var c call
		if err := decoder.Decode(&c); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if c.ID == "" || c.Process == "" || c.Object == "" || c.Op == "" || c.Call <= 0 {
			return nil, fmt.Errorf("line %d: it does not say which call", n)
		}
		at, again := begun[c.ID]
		switch {
		case c.Result == "" && !again:
			c.Result = "unknown"
			c.Return = forever
			begun[c.ID] = len(all)
			all = append(all, c)
		case again && all[at].Return == forever && all[at].Call == c.Call && c.Return >= c.Call &&
			(c.Result == "yes" || c.Result == "no" || c.Result == "unknown"):
			if c.Result == "unknown" {
				c.Return = forever
			}
			all[at] = c
		default:
			return nil, fmt.Errorf("line %d: neither the begin of a call nor the end of one", n)
		}
	}
	return all, lines.Err()
}

// judge tells what it thinks of the calls of one object; "" if all is well.
func judge(all []call, limit time.Duration) string {
	switch all[0].Object {
	case "watch":
		return judgeWatches(all)
	case "mirror":
		return judgeMirrors(all)
	case "work":
		return judgeWork(all)
	}
	m, known := models[all[0].Object]
	if !known {
		return "there is no model of a " + all[0].Object
	}
	events, complaint := prepare(all)
	if complaint != "" {
		return complaint
	}
	history := make([]porcupine.Operation, len(events))
	for i, e := range events {
		history[i] = porcupine.Operation{Input: e, Call: e.Call, Return: e.Return}
	}
	switch porcupine.CheckOperationsTimeout(m, history, limit) {
	case porcupine.Ok:
		return ""
	case porcupine.Unknown:
		return fmt.Sprintf("undecided after %s", limit)
	}
	_, found := porcupine.CheckOperationsVerbose(m, history, limit)
	longest := []int{}
	for _, partial := range found.PartialLinearizations() {
		for _, order := range partial {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	return explain(events, longest)
}

// explain names the calls of which none can come next.
func explain(events []event, order []int) string {
	placed := map[int]bool{}
	last := []string{}
	for i, n := range order {
		placed[n] = true
		if i+4 >= len(order) {
			last = append(last, "  "+events[n].call.String())
		}
	}
	var open []event
	for i, e := range events {
		if !placed[i] {
			open = append(open, e)
		}
	}
	sort.Slice(open, func(i, j int) bool { return open[i].Return < open[j].Return })
	text := fmt.Sprintf("%d of %d calls can have happened, the last of them\n%s\nand next none of\n",
		len(order), len(events), strings.Join(last, "\n"))
	proved := map[int64]event{} // what is held must be, for a call to come
	for _, e := range open {
		if e.Call <= open[0].Return {
			text += "  " + e.call.String() + "\n"
		}
		if slices.Contains(claims, e.Op) && e.Result == "yes" {
			proved[e.Token] = e
		}
	}
	for n := range placed {
		if e := events[n]; slices.Contains(takes, e.Op) && proved[e.Token].Token != 0 {
			text += fmt.Sprintf("%d is held until\n  %s\n", e.Token, proved[e.Token].call)
		}
	}
	return text
}

func judgeFile(name string) int {
	file, err := os.Open(name)
	if err != nil {
		fmt.Println(err)
		return 2
	}
	defer file.Close()
	all, err := parse(bufio.NewScanner(file))
	if err != nil {
		fmt.Printf("%s: %s\n", name, err)
		return 2
	}
	objects := map[string][]call{}
	for _, c := range all {
		objects[c.Object+" "+c.Name] = append(objects[c.Object+" "+c.Name], c)
	}
	status := 0
	for object, calls := range objects {
		unknown := 0
		for _, c := range calls {
			if c.Result == "unknown" {
				unknown++
			}
		}
		complaint := judge(calls, time.Minute)
		if complaint != "" {
			status = 1
		} else {
			complaint = "this can have happened"
		}
		fmt.Printf("%s: %d calls, %d of them with an unknown end: %s\n",
			object, len(calls), unknown, complaint)
	}
	if len(objects) == 0 {
		fmt.Println("there are no calls")
		return 2
	}
	return status
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: judge FILE, or judge --test")
		os.Exit(2)
	}
	if os.Args[1] == "--test" {
		os.Exit(test())
	}
	os.Exit(judgeFile(os.Args[1]))
}
