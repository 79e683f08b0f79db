// SPDX-License-Identifier: BSL-1.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// What watches told, against what was written. No order has to be looked for here: revisions are one.
//
//	write      a transaction: what it puts (values begin with the id of the call), and, with "", erases
//	begin      a watch of the process, from the revision `amount` on: of one key, or, if `value` ends
//	           with a slash, of all that begin with it
//	resume     it goes on where it was
//	see        what it told next, up to the revision `token`
//
// The properties are those of which etcd says that its watches have them: ordered, unique, atomic,
// reliable, resumable, bookmarkable; nothing that was not asked for; and of each key what it was before.

// A version is what a key was after a change of it.
type version struct {
	Value    string `json:"value"`
	Revision int64  `json:"revision"`
	Create   int64  `json:"create"`
	Version  int64  `json:"version"`
}

// A change is an event of a watch.
type change struct {
	Key    string   `json:"key"`
	Erased bool     `json:"erased,omitempty"`
	Now    version  `json:"now"`
	Before *version `json:"before,omitempty"`
	At     int64    `json:"at,omitempty"` // of a mirror: when it was found by comparison
}

// A spectator is one watch.
type spectator struct {
	process, keys string
	position      int64   // all up to here was told
	from          int64   // where it began
	seen          []int64 // revisions
}

func (s spectator) wants(key string) bool {
	return key == s.keys || strings.HasSuffix(s.keys, "/") && strings.HasPrefix(key, s.keys)
}

// A stage is what there was to see, as far as it was told: of each revision, by key.
type stage struct {
	written map[string]call // by the id
	proved  map[int64]call  // by the revision
	seen    map[int64]map[string]change
}

// takes one event of a watch into account.
func (s stage) take(e change) string {
	at := e.Now.Revision
	if s.seen[at] == nil {
		s.seen[at] = map[string]change{}
	}
	if other, known := s.seen[at][e.Key]; known && (other.Erased != e.Erased || other.Now != e.Now) {
		return fmt.Sprintf("was told otherwise elsewhere: %+v", other)
	}
	if other := s.seen[at][e.Key]; e.Before == nil {
		e.Before = other.Before
	}
	s.seen[at][e.Key] = e
	w, known := s.proved[at]
	if !e.Erased {
		id, _, _ := strings.Cut(e.Now.Value, " ")
		wrote, any := s.written[id]
		if !any || known && wrote.ID != w.ID || wrote.Result == "no" {
			return "was not written there"
		}
		w, known = wrote, true
	}
	if !known {
		return ""
	}
	if len(w.Writes) == 0 {
		return "" // its writer has died
	}
	value, wrote := w.Writes[e.Key]
	if !wrote || (value == "") != e.Erased || value != e.Now.Value || w.Result == "yes" && w.Token != at {
		return "is not what was written: " + w.String()
	}
	return ""
}

// replay says whether the changes follow from each other, and tells of each revision what had to be
// seen: to erase what is not there changes nothing.
func (s stage) replay() (map[int64][]string, string) {
	all := map[int64]bool{}
	for at := range s.seen {
		all[at] = true
	}
	for at := range s.proved {
		all[at] = true
	}
	due := map[int64][]string{}
	last := map[string]version{} // zero if it was erased; what was before the first is not known
	for _, at := range slices.Sorted(maps.Keys(all)) {
		for _, key := range slices.Sorted(maps.Keys(s.proved[at].Writes)) {
			if _, told := s.seen[at][key]; !told && (s.proved[at].Writes[key] != "" || last[key].Version != 0) {
				due[at] = append(due[at], key)
				delete(last, key) // it was not told
			}
		}
		for _, key := range slices.Sorted(maps.Keys(s.seen[at])) {
			due[at] = append(due[at], key)
			e := s.seen[at][key]
			before, known := last[key]
			now := e.Now
			switch {
			case e.Before != nil && known && *e.Before != before:
				return nil, fmt.Sprintf("%+v: before it was %+v", e, before)
			case e.Before != nil && e.Before.Revision >= at:
				return nil, fmt.Sprintf("%+v: what was before is not older", e)
			case e.Erased:
				now = version{}
			case known && before.Version == 0 && (now.Version != 1 || now.Create != at):
				return nil, fmt.Sprintf("%+v: it was not there before", e)
			case known && before.Version > 0 && (now.Version != before.Version+1 || now.Create != before.Create):
				return nil, fmt.Sprintf("%+v: before it was %+v", e, before)
			}
			last[key] = now
		}
	}
	return due, ""
}

// judgeWatches tells what is wrong with what they told; "" if nothing is.
func judgeWatches(all []call) string {
	s := stage{map[string]call{}, map[int64]call{}, map[int64]map[string]change{}}
	for _, c := range all {
		if c.Op != "write" {
			continue
		}
		s.written[c.ID] = c
		if other, again := s.proved[c.Token]; c.Result == "yes" && again {
			return "a revision is given twice: " + c.String() + " " + other.String()
		}
		if c.Result == "yes" {
			s.proved[c.Token] = c
		}
	}
	current := map[string]*spectator{}
	var spectators []*spectator
	for _, c := range all { // those of one process as they began
		w := current[c.Process]
		switch {
		case c.Op == "write" || c.Result != "yes":
		case c.Op == "begin":
			w = &spectator{process: c.Process, keys: c.Value, position: c.Amount - 1, from: c.Amount}
			current[c.Process] = w
			spectators = append(spectators, w)
		case w == nil || c.Op != "see" && c.Op != "resume":
			return "no such call: " + c.String()
		case c.Op == "see":
			if complaint := w.see(s, c); complaint != "" {
				return complaint
			}
		}
	}
	if len(spectators) == 0 {
		return "nobody watches"
	}
	due, complaint := s.replay()
	if complaint != "" {
		return complaint
	}
	for _, w := range spectators {
		at := 0
		for _, revision := range slices.Sorted(maps.Keys(due)) {
			if revision < w.from || revision > w.position || !slices.ContainsFunc(due[revision], w.wants) {
				continue
			}
			for at < len(w.seen) && w.seen[at] < revision {
				at++
			}
			if at == len(w.seen) || w.seen[at] != revision {
				return fmt.Sprintf("the watch of %s, told of all from %d to %d, was not told of %d: %v",
					w.process, w.from, w.position, revision, due[revision])
			}
		}
	}
	// And of each revision all of it.
	for _, c := range all {
		if c.Op != "see" || c.Result != "yes" {
			continue
		}
		told := map[int64]map[string]bool{}
		for _, e := range c.Events {
			if told[e.Now.Revision] == nil {
				told[e.Now.Revision] = map[string]bool{}
			}
			told[e.Now.Revision][e.Key] = true
		}
		keys := spectator{keys: c.Value}
		for revision := range told {
			for _, key := range due[revision] {
				if keys.wants(key) && !told[revision][key] {
					return fmt.Sprintf("a part of %d is missing, %s: %s", revision, key, c)
				}
			}
		}
	}
	return ""
}

// see takes into account what the watch told next.
func (w *spectator) see(s stage, c call) string {
	if c.Token < w.position {
		return fmt.Sprintf("it goes back from %d: %s", w.position, c)
	}
	if c.Value != w.keys {
		return "it is another watch: " + c.String()
	}
	last, told := w.position, map[string]bool{}
	for i, e := range c.Events {
		at := e.Now.Revision
		switch {
		case at <= w.position || at < last:
			return fmt.Sprintf("an event comes late, after %d: %+v in %s", last, e, c)
		case at > c.Token:
			return fmt.Sprintf("an event comes early: %+v in %s", e, c)
		case !w.wants(e.Key):
			return fmt.Sprintf("nobody asked for it: %+v in %s", e, c)
		case at > last || i == 0:
			clear(told)
			w.seen = append(w.seen, at)
		}
		if told[e.Key] {
			return fmt.Sprintf("an event comes twice: %+v in %s", e, c)
		}
		told[e.Key] = true
		if complaint := s.take(e); complaint != "" {
			return fmt.Sprintf("%+v %s; in %s", e, complaint, c)
		}
		last = at
	}
	w.position = c.Token
	return ""
}
