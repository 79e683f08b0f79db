// SPDX-License-Identifier: BSL-1.0

package main

import (
	"fmt"
	"slices"
)

// What producers and consumers saw of a work queue. Values are those of no other item.
//
//	enqueue    items next to each other: the keys of `writes`
//	take       yes: the item `value`, in its attempt `amount`, of the id in `reads`
//	ack        yes: together with an effect, which has the token of the attempt
//	retry, bury
//	effects    at the end: of each item, with its token, and how many of them; `amount` is the sum
//	dead       at the end: by their values, with ids and attempts, of which there are at most `amount`
//	left       at the end: so many others
//
// No order has to be looked for here, either: attempts at an item have tokens that grow.

// An item is what became of one.
type item struct {
	enqueued call
	ids      []string
	takes    []call
	ended    call   // the attempt that has ended it: ack, or bury
	buried   bool   // perhaps
	others   []call // attempts that had no effect, as somebody was told
	effect   *version
	dead     *version
}

// ends takes note of an attempt that was the last one, as somebody was told.
func (i *item) ends(c call) string {
	if i.ended.ID != "" && i.ended.Token != c.Token {
		return fmt.Sprintf("it had ended, by %s", i.ended)
	}
	i.ended = c
	return ""
}

// judgeWork tells what is wrong with what they saw; "" if nothing is.
func judgeWork(all []call) string {
	items := map[string]*item{}
	for _, c := range all {
		if c.Op != "enqueue" || c.Result == "no" {
			continue
		}
		for value := range c.Writes {
			if items[value] != nil {
				return "it was enqueued before: " + c.String()
			}
			items[value] = &item{enqueued: c}
		}
	}
	looked := map[string]bool{}
	most := int64(0)
	for _, c := range all {
		if complaint := work(items, c); complaint != "" {
			return complaint + ": " + c.String()
		}
		looked[c.Op] = looked[c.Op] || c.Result == "yes"
		if c.Op == "dead" {
			most = c.Amount
		}
	}
	for _, op := range []string{"effects", "dead", "left"} {
		if !looked[op] {
			return "nobody has looked at the end"
		}
	}
	for value, i := range items {
		if complaint := i.judge(most); complaint != "" {
			return fmt.Sprintf("%s: %s, which was enqueued by %s", complaint, value, i.enqueued)
		}
	}
	for _, c := range all {
		there := 0
		for value := range c.Writes {
			if i := items[value]; i != nil && (i.effect != nil || i.dead != nil) {
				there++
			}
		}
		if c.Op == "enqueue" && there != 0 && there != len(c.Writes) {
			return "a part of it is missing: " + c.String()
		}
	}
	return ""
}

// work takes a call into account.
func work(items map[string]*item, c call) string {
	i := items[c.Value]
	switch c.Op {
	case "take", "ack", "retry", "bury":
		if i == nil && c.Value != "" {
			return "it was never enqueued"
		}
	}
	switch c.Op {
	case "enqueue":
	case "take":
		if c.Result == "yes" {
			if c.Return < i.enqueued.Call {
				return "it was not enqueued yet"
			}
			i.ids = append(i.ids, c.Reads["id"])
			i.takes = append(i.takes, c)
		}
	case "ack", "retry", "bury":
		if c.Op == "bury" && c.Result != "no" {
			i.buried = true
		}
		has := func(t call) bool { return t.Token == c.Token && t.Return <= c.Call }
		if !slices.ContainsFunc(i.takes, has) {
			return "it was not taken"
		}
		later := func(t call) bool { return t.Token > c.Token && t.Return < c.Call }
		if c.Result == "yes" && slices.ContainsFunc(i.takes, later) {
			return "somebody else had it"
		}
		if c.Result == "yes" && c.Op != "retry" {
			return i.ends(c)
		}
		if c.Op == "retry" && c.Result == "yes" || c.Op == "ack" && c.Result == "no" {
			i.others = append(i.others, c)
		}
	case "effects":
		sum := int64(0)
		for _, e := range c.Events {
			if items[e.Key] == nil {
				return "it was never enqueued, " + e.Key
			}
			items[e.Key].effect = &e.Now
			sum += e.Now.Version
			if e.Now.Version != 1 {
				return "an effect happened twice, of " + e.Key
			}
		}
		if sum != c.Amount {
			return "effects were not counted"
		}
	case "dead":
		for _, e := range c.Events {
			i := items[e.Key]
			switch {
			case i == nil:
				return "it was never enqueued, " + e.Key
			case i.dead != nil:
				return "it is dead twice, " + e.Key
			case e.Now.Version > c.Amount || e.Now.Version < c.Amount && !i.buried:
				return "it has died of nothing, " + e.Key
			}
			i.dead = &e.Now
			i.ids = append(i.ids, e.Now.Value)
		}
	case "left":
		if c.Amount != 0 {
			return "nobody gets them"
		}
	default:
		return "no such call"
	}
	return ""
}

// judge tells what is wrong with what became of it.
func (i *item) judge(most int64) string {
	slices.SortFunc(i.takes, func(a, b call) int { return int(a.Token - b.Token) })
	for n, t := range i.takes {
		if t.Amount > most {
			return fmt.Sprintf("one attempt too many, %s", t)
		}
		if n == 0 {
			continue
		}
		before := i.takes[n-1]
		if before.Token == t.Token || before.Amount >= t.Amount || before.Call > t.Return {
			return fmt.Sprintf("%s does not follow %s", t, before)
		}
	}
	if len(slices.Compact(slices.Clone(i.ids))) > 1 {
		return fmt.Sprintf("it was enqueued twice, as %v", i.ids)
	}
	last := int64(0) // that has ended it
	switch {
	case i.ended.Op == "ack" && i.effect == nil:
		return "its effect is missing"
	case i.ended.Op == "bury" && i.dead == nil:
		return "it is not dead"
	case i.effect != nil && i.dead != nil:
		return "it is dead, and has had its effect"
	case i.effect == nil && i.dead == nil && i.enqueued.Result == "yes":
		return "it is lost"
	case i.effect != nil:
		last = i.effect.Revision
		if i.ended.ID != "" && i.ended.Token != last {
			return fmt.Sprintf("its effect is not that of %s, but of %d", i.ended, last)
		}
	case i.ended.ID != "":
		last = i.ended.Token
	}
	for _, c := range i.others {
		if i.effect != nil && c.Token == last {
			return fmt.Sprintf("its effect is that of %s", c)
		}
	}
	for _, t := range i.takes {
		if last != 0 && t.Token > last {
			return fmt.Sprintf("it was taken after its end, by %s", t)
		}
	}
	return ""
}
