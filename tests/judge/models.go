// SPDX-License-Identifier: BSL-1.0

package main

import (
	"maps"
	"reflect"
	"slices"

	"github.com/anishathalye/porcupine"
)

// Models of what there is to lock. A grant of a lock, of a permit, of a leadership has a token, and
// lasts until the last call that proves it. Later it may end at any moment, with its lease, and
// that need not be told: so an end is no call, and a grant that is not used is no obstacle.
//
//	lock, try_lock, lock_shared, try_lock_shared, acquire, try_acquire, campaign, try_campaign
//	           take something; no, or an unknown end, proves nothing: others may have waited, too
//	owns, leads        as far as the client knows; no is no proof that it is lost
//	write, proclaim    a transaction with the guard: no proves that it is lost
//	unlock, release, resign   give back: no proves that it is lost, as far as the client knows
//	downgrade, upgrade
//	limit              of a semaphore
//	leader             who leads, and with which value; no: nobody
//	observe            what a feed tells; of one process never back
//	txn                all reads and writes at once
//	next               the next number
var (
	takes  = []string{"lock", "try_lock", "lock_shared", "try_lock_shared", "acquire", "try_acquire", "campaign", "try_campaign"}
	gives  = []string{"unlock", "release", "resign"}
	claims = append([]string{"owns", "leads", "write", "proclaim", "downgrade", "upgrade"}, gives...)
	// A refusal of these is proof that the token is of no use any more.
	proofs = append([]string{"write", "proclaim"}, gives...)
	// They may be applied at any time after their begin if their end is unknown.
	lasting = []string{"downgrade", "proclaim", "limit", "txn"}
	others  = []string{"limit", "leader", "txn", "next", "observe"}
)

type event struct {
	call
	left  int   // how many other calls prove the token
	spare int64 // of a number: how many calls with an unknown end may have taken one before
}

var models = map[string]porcupine.Model{
	"mutex":        model(holds{}, holds.step),
	"shared_mutex": model(holds{}, holds.step),
	"semaphore":    model(holds{}, holds.step),
	"election":     model(reign{}, reign.step),
	"stm":          model(store{}, store.step),
	"sequence":     model(numbers{}, numbers.step),
}

func model[State any](initial State, step func(State, event) (State, bool)) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, input, _ any) (bool, any) {
			next, legal := step(state.(State), input.(event))
			return legal, next
		},
		Equal: func(a, b any) bool { return reflect.DeepEqual(a, b) },
	}
}

// prepare leaves out the calls that prove nothing.
func prepare(all []call) ([]event, string) {
	proved := map[int64]int{}
	granted := map[int64]bool{}
	told := map[string]int64{} // to an observer, the last term
	var lost []int64           // when calls for a number began whose end is unknown
	for _, c := range all {    // those of one process as they began
		isTake := slices.Contains(takes, c.Op)
		isClaim := slices.Contains(claims, c.Op)
		switch {
		case !isTake && !isClaim && !slices.Contains(others, c.Op):
			return nil, "no such call: " + c.String()
		case c.Op == "next" && c.Result == "unknown":
			lost = append(lost, c.Call)
		case c.Result != "yes":
		case isTake && (granted[c.Token] || c.Token <= 0):
			return nil, "a token is given twice: " + c.String()
		case isTake:
			granted[c.Token] = true
		case isClaim:
			proved[c.Token]++
		case c.Op == "observe" && c.Token < told[c.Process]:
			return nil, "an observer is told of a former leader: " + c.String()
		case c.Op == "observe":
			told[c.Process] = c.Token
		}
	}
	var events []event
	for _, c := range all {
		isClaim := slices.Contains(claims, c.Op)
		if isClaim && c.Result == "yes" && !granted[c.Token] {
			return nil, "nobody was given this token: " + c.String()
		}
		e := event{call: c}
		switch {
		case c.Op == "observe":
			continue
		case slices.Contains(takes, c.Op):
			e.left = proved[c.Token]
		case c.Op == "next":
			for _, began := range lost {
				if began < c.Return {
					e.spare++
				}
			}
		}
		useful := c.Result == "yes" ||
			c.Result == "no" && (slices.Contains(proofs, c.Op) || c.Op == "leader") ||
			c.Result == "unknown" && slices.Contains(lasting, c.Op)
		if useful {
			events = append(events, e)
		}
	}
	return events, ""
}

type hold struct {
	token, amount int64
	shared        bool
	left          int
}

// holds are those of a mutex, of a shared_mutex or of a semaphore.
type holds struct {
	all           []hold // those that another call will prove
	newest        int64  // token
	newestOfAlone int64  // that was not shared
	limit         int64
}

// room tells whether something may be granted beside what is held.
func (h holds) room(e event) bool {
	used := e.Amount
	for _, other := range h.all {
		used += other.amount
		if e.Object != "semaphore" && !(e.Shared && other.shared) {
			return false
		}
	}
	return e.Object != "semaphore" || used <= h.limit
}

// inOrder tells whether the grant comes in the order of tokens. Readers overtake each other, and so
// do attempts that have found room in a semaphore.
func (h holds) inOrder(e event) bool {
	return e.Object == "semaphore" || e.Token > h.newestOfAlone && (e.Shared || e.Token > h.newest)
}

func (h holds) grant(e event) (holds, bool) {
	if !h.room(e) || !h.inOrder(e) {
		return h, false
	}
	h.newest = max(h.newest, e.Token)
	if !e.Shared {
		h.newestOfAlone = max(h.newestOfAlone, e.Token)
	}
	if e.left > 0 {
		h.all = append(slices.Clone(h.all), hold{e.Token, e.Amount, e.Shared, e.left})
	}
	return h, true
}

// claim takes a call into account that the holder of the token alone may make.
func (h holds) claim(e event) (holds, bool) {
	at := slices.IndexFunc(h.all, func(one hold) bool { return one.token == e.Token })
	if e.Result == "no" {
		return h, at < 0
	}
	if at < 0 {
		return h, e.Result == "unknown" // a downgrade of what is gone
	}
	one := h.all[at]
	switch e.Op {
	case "downgrade":
		one.shared = true
	case "upgrade":
		if len(h.all) != 1 {
			return h, false
		}
		one.shared = false
		h.newestOfAlone = max(h.newestOfAlone, e.Token)
	default:
		if one.shared && !e.Shared && e.Object == "shared_mutex" && !slices.Contains(gives, e.Op) {
			return h, false // it reads, and claims to write
		}
	}
	if e.Result == "yes" {
		one.left--
	}
	h.all = slices.Clone(h.all)
	if one.left == 0 || slices.Contains(gives, e.Op) {
		h.all = slices.Delete(h.all, at, at+1)
	} else {
		h.all[at] = one
	}
	if len(h.all) == 0 {
		h.all = nil
	}
	return h, true
}

func (h holds) step(e event) (holds, bool) {
	switch {
	case e.Op == "limit":
		h.limit = e.Amount
		return h, true
	case slices.Contains(takes, e.Op):
		return h.grant(e)
	case slices.Contains(claims, e.Op):
		return h.claim(e)
	}
	return h, false
}

// reign is the state of an election.
type reign struct {
	holds
	term  int64 // the newest that is known of
	value string
	over  bool // that term
}

func (r reign) step(e event) (reign, bool) {
	var legal bool
	switch {
	case e.Op == "leader" && e.Result == "no":
		r.over = true
		return r, len(r.all) == 0
	case e.Op == "leader" && e.Token == r.term:
		return r, !r.over && e.Value == r.value
	case e.Op == "leader":
		// A leader that does not know it yet, or never will.
		legal = e.Token > r.term && len(r.all) == 0
		r.term, r.value, r.over = e.Token, e.Value, false
		return r, legal
	case slices.Contains(takes, e.Op):
		known := e.Token == r.term
		if e.Token < r.term || known && (r.over || e.Value != r.value) {
			return r, false
		}
		r.holds, legal = r.grant(e)
		r.term, r.value, r.over = e.Token, e.Value, false
		return r, legal
	case e.Op == "proclaim" && e.Result == "unknown":
		if e.Token == r.term && !r.over {
			r.value = e.Value
		}
		return r, true
	case slices.Contains(claims, e.Op):
		r.holds, legal = r.claim(e)
		if e.Op == "proclaim" && e.Result == "yes" {
			r.value = e.Value
		}
		// One whose session is lost by its own clock is still there, until its lease ends.
		if slices.Contains(gives, e.Op) && e.Token == r.term && e.Result == "yes" {
			r.over = true
		}
		return r, legal
	}
	return r, false
}

// store is what transactions read and write.
type store struct {
	all      map[string]string
	revision int64
}

func (s store) step(e event) (store, bool) {
	if e.Op != "txn" {
		return s, false
	}
	for key, value := range e.Reads {
		if s.all[key] != value {
			return s, e.Result == "unknown" // it was refused
		}
	}
	if len(e.Writes) == 0 {
		return s, true
	}
	if e.Token != 0 && e.Token <= s.revision {
		return s, false
	}
	s.revision = max(s.revision, e.Token)
	after := map[string]string{}
	maps.Copy(after, s.all)
	maps.Copy(after, e.Writes)
	s.all = after
	return s, true
}

// numbers are those that were given.
type numbers struct {
	last    int64
	skipped int64 // by calls whose end is not known
}

func (n numbers) step(e event) (numbers, bool) {
	n.skipped += e.Amount - n.last - 1
	legal := e.Op == "next" && e.Amount > n.last && n.skipped <= e.spare
	n.last = e.Amount
	return n, legal
}
