// SPDX-License-Identifier: BSL-1.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// What mirrors, and feeds of groups, told of what was written. A patient watch tells what that was:
// it is judged first, as watches are.
//
//	write, begin, see   as of watches; there is one watch, of all
//	open       a mirror of the process, of the keys `value`, as of a watch; it has two readers
//	told       what its reader `amount` was told next, up to the revision `token`: each change, with
//	           what was before, or, with `at`, what a comparison at that revision has found
//	wait       until it has the revision `token`: yes or no
//	snapshot   all its keys, at the revision `token`
//	truth      all keys, as etcd told at the revision `token`
//	end        the mirror and its readers have all up to the revision `token`
//	feed       of the keys `value`, of the process
//	members    what it told next: all of them, the oldest first
//	settled    what it told last is what there was at the revision `token`, or later
//
// A mirror has the same properties as a watch, but for what lies before a comparison: that leaves out
// what was in between, and must tell all that differs.

// A state is all keys after one revision.
type state map[string]version

// A chronicle is what the patient watch was told: the state after each revision.
type chronicle struct {
	events    map[int64]map[string]change
	revisions []int64
	states    []state
	known     int64 // all up to here
}

func newChronicle(all []call) chronicle {
	s := chronicle{events: map[int64]map[string]change{}}
	for _, c := range all {
		if c.Op != "see" || c.Result != "yes" {
			continue
		}
		s.known = max(s.known, c.Token)
		for _, e := range c.Events {
			at := e.Now.Revision
			if s.events[at] == nil {
				s.events[at] = map[string]change{}
			}
			s.events[at][e.Key] = e
		}
	}
	s.revisions = slices.Sorted(maps.Keys(s.events))
	now := state{}
	for _, at := range s.revisions {
		now = maps.Clone(now)
		for _, e := range s.events[at] {
			now.become(e)
		}
		s.states = append(s.states, now)
	}
	return s
}

// after is the number of the first revision after this one: of so many changes there was the state.
func (s chronicle) after(revision int64) int {
	at, _ := slices.BinarySearch(s.revisions, revision+1)
	return at
}

// of is what there was at a revision, of these keys.
func (s chronicle) of(keys spectator, revision int64) state {
	found := state{}
	if at := s.after(revision); at > 0 {
		for key, v := range s.states[at-1] {
			if keys.wants(key) {
				found[key] = v
			}
		}
	}
	return found
}

func (s state) become(e change) {
	if e.Erased {
		delete(s, e.Key)
	} else {
		s[e.Key] = e.Now
	}
}

func stateOf(events []change) state {
	s := state{}
	for _, e := range events {
		s[e.Key] = e.Now
	}
	return s
}

// A reader is one that a mirror tells of changes.
type reader struct {
	keys  spectator
	keeps state
	told  int64 // all up to here; negative: nothing yet
}

// takes what it was told next.
func (r *reader) takes(s chronicle, c call) string {
	if c.Token <= r.told {
		return fmt.Sprintf("it goes back from %d", r.told)
	}
	reached := r.told
	for rest := c.Events; len(rest) != 0; {
		at := rest[0].when()
		n := slices.IndexFunc(rest, func(e change) bool { return e.when() != at })
		if n < 0 {
			n = len(rest)
		}
		if at <= reached || at > c.Token {
			return fmt.Sprintf("a change of %d comes after all up to %d", at, reached)
		}
		compared := rest[0].At != 0
		if !compared && reached < 0 {
			return "it begins in the middle"
		}
		for i, e := range rest[:n] {
			if complaint := r.take(s, e, compared, rest[:i]); complaint != "" {
				return fmt.Sprintf("%+v: %s", e, complaint)
			}
		}
		if !compared {
			if complaint := r.skipped(s, reached, at); complaint != "" {
				return complaint
			}
			for key := range s.events[at] {
				is := func(e change) bool { return e.Key == key }
				if r.keys.wants(key) && !slices.ContainsFunc(rest[:n], is) {
					return fmt.Sprintf("a part of %d is missing, %s", at, key)
				}
			}
		}
		if there := s.of(r.keys, at); !maps.Equal(r.keeps, there) {
			return fmt.Sprintf("at %d there was %v, but it was told of %v", at, there, r.keeps)
		}
		reached = at
		rest = rest[n:]
	}
	if complaint := r.skipped(s, reached, c.Token+1); complaint != "" && reached >= 0 {
		return complaint
	}
	if there := s.of(r.keys, c.Token); !maps.Equal(r.keeps, there) {
		return fmt.Sprintf("at %d there was %v, but it was told of %v", c.Token, there, r.keeps)
	}
	r.told = c.Token
	return ""
}

// when a change was made or found.
func (e change) when() int64 {
	if e.At != 0 {
		return e.At
	}
	return e.Now.Revision
}

// take takes one change into account.
func (r *reader) take(s chronicle, e change, compared bool, others []change) string {
	before, known := r.keeps[e.Key]
	happened, told := s.events[e.Now.Revision][e.Key]
	switch {
	case !r.keys.wants(e.Key):
		return "nobody asked for it"
	case (e.At != 0) != compared:
		return "it is compared, and others are not"
	case slices.ContainsFunc(others, func(o change) bool { return o.Key == e.Key }):
		return "it comes twice"
	case known != (e.Before != nil) || known && before != *e.Before:
		return fmt.Sprintf("before it was %+v", before)
	case compared && e.Erased && !known, compared && known && !e.Erased && before == e.Now:
		return "that is no difference"
	case !(compared && e.Erased) && (!told || happened.Erased != e.Erased || happened.Now.Value != e.Now.Value):
		return "that did not happen"
	case !e.Erased && happened.Now != e.Now:
		return fmt.Sprintf("it became %+v", happened.Now)
	}
	r.keeps.become(e)
	return ""
}

// skipped tells what happened between two revisions.
func (r *reader) skipped(s chronicle, after, before int64) string {
	for i := s.after(after); i < len(s.revisions) && s.revisions[i] < before; i++ {
		for key := range s.events[s.revisions[i]] {
			if r.keys.wants(key) {
				return fmt.Sprintf("it was not told of %d: %s", s.revisions[i], key)
			}
		}
	}
	return ""
}

// A follower is a process, with its mirror and its feed.
type follower struct {
	readers [2]*reader
	keys    spectator
	latest  int64 // what the mirror has shown, or said that it has
	members spectator
	listed  int // so many revisions, at least, are in what was listed last; negative: nothing was
	list    []change
}

// judgeMirrors tells what is wrong with what they told; "" if nothing is.
func judgeMirrors(all []call) string {
	var watched []call
	for _, c := range all {
		if c.Op == "write" || c.Op == "begin" || c.Op == "see" {
			watched = append(watched, c)
		}
	}
	if complaint := judgeWatches(watched); complaint != "" {
		return "the patient watch: " + complaint
	}
	s := newChronicle(watched)
	followers := map[string]*follower{}
	opened, ended := 0, 0
	for _, c := range all { // those of one process as they began
		f := followers[c.Process]
		if f == nil {
			f = &follower{}
			followers[c.Process] = f
		}
		switch {
		case c.Op == "end" && c.Result == "yes":
			ended++
		case c.Op == "end", c.Op == "settled" && c.Result != "yes":
			return "it never has what there is: " + c.String()
		case c.Result == "no" && (c.Op == "told" || c.Op == "members"):
			return "an outage is no end: " + c.String()
		}
		if c.Result != "yes" {
			continue
		}
		if c.Token > s.known && c.Op != "write" {
			return fmt.Sprintf("the patient watch knows until %d: %s", s.known, c)
		}
		if complaint := f.does(s, c); complaint != "" {
			return complaint + ": " + c.String()
		}
		if c.Op == "open" {
			opened++
		}
	}
	switch {
	case opened == 0:
		return "nobody mirrors"
	case ended == 0:
		return "nobody has looked at the end"
	}
	return ""
}

// does takes a call of its process into account.
func (f *follower) does(s chronicle, c call) string {
	if f.readers[0] == nil && slices.Contains([]string{"told", "wait", "snapshot", "end"}, c.Op) {
		return "there is no mirror"
	}
	switch c.Op {
	case "write", "begin", "see":
	case "open":
		f.keys = spectator{keys: c.Value}
		f.latest = 0
		for i := range f.readers {
			f.readers[i] = &reader{f.keys, state{}, -1}
		}
	case "told":
		if complaint := f.readers[c.Amount].takes(s, c); complaint != "" {
			return complaint
		}
		f.latest = max(f.latest, c.Token)
	case "wait":
		f.latest = max(f.latest, c.Token)
	case "snapshot":
		if c.Token < f.latest {
			return fmt.Sprintf("it shows an old state, after %d", f.latest)
		}
		f.latest = c.Token
		if there := s.of(f.keys, c.Token); len(c.Events) != len(there) || !maps.Equal(there, stateOf(c.Events)) {
			return fmt.Sprintf("there was %v", there)
		}
	case "truth":
		if there := s.of(spectator{keys: c.Value}, c.Token); !maps.Equal(there, stateOf(c.Events)) {
			return fmt.Sprintf("the patient watch knows of %v", there)
		}
	case "end":
		for i, r := range f.readers {
			if r.told < c.Token {
				return fmt.Sprintf("its reader %d was told of all up to %d", i, r.told)
			}
		}
		if f.latest < c.Token {
			return fmt.Sprintf("it has shown all up to %d", f.latest)
		}
	case "feed":
		f.members = spectator{keys: c.Value}
		f.listed = -1
	case "members":
		if f.listed >= 0 && slices.Equal(f.list, c.Events) {
			return "nothing has changed"
		}
		f.list = c.Events
		return f.lists(s, f.listed)
	case "settled":
		return f.lists(s, max(f.listed, s.after(c.Token)))
	default:
		return "no such call"
	}
	return ""
}

// lists says whether there were these members after so many revisions, or later.
func (f *follower) lists(s chronicle, from int) string {
	if !slices.IsSortedFunc(f.list, func(a, b change) int { return cmp.Compare(a.Now.Create, b.Now.Create) }) {
		return "the oldest member does not come first"
	}
	listed := stateOf(f.list)
	if len(listed) != len(f.list) {
		return "a member is listed twice"
	}
	for at := max(from, 0); at <= len(s.states); at++ {
		there := state{}
		if at > 0 {
			there = s.of(f.members, s.revisions[at-1])
		}
		for key, v := range there { // of these a feed tells no more
			there[key] = version{Value: v.Value, Revision: v.Revision, Create: v.Create}
		}
		if maps.Equal(there, listed) {
			f.listed = at
			return ""
		}
	}
	return "there were no such members, not since then"
}
