// SPDX-License-Identifier: BSL-1.0

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The same of work queues: `enqueue a b`, `take 5 a` (an attempt is the next one of its item, or
// follows a colon, as the id does), `ack 5 a`. Then, in the end, `effects a:5 b:7`, `dead c:2`, and
// `left`; there are at most three attempts. Brackets are as above. An effect that happened twice is
// `a:5:2`.
var workScripts = []struct {
	calls    string
	possible bool
}{
	{"enqueue a b; take 5 a; ack 5 a; take 7 b; retry 7 b; take 9 b; bury 9 b; effects a:5; dead b:2; left", true},
	{"enqueue a; take 5 a; take 7 a; ack 5 no a; ack 7 a; effects a:7; dead; left", true},                  // it was overtaken
	{"enqueue a; take 5 a; [ take 7 a; ack 5 no a ]; ack 7 a; effects a:7; dead; left", true},              // the same
	{"enqueue a; take 5 a; ack 5 unknown a; effects a:5; dead; left", true},                                // it was done
	{"enqueue a; take 5 a; ack 5 unknown a; take 7 a; ack 7 a; effects a:7; dead; left", true},             // it was not
	{"enqueue unknown a b; effects; dead; left", true},                                                     // it was not
	{"enqueue unknown a b; take 5 a; take 7 b; ack 7 b; ack 5 a; effects a:5 b:7; dead; left", true},       // it was done
	{"enqueue no a; effects; dead; left", true},                                                            // it was refused
	{"enqueue a; take 5 a; take 7 a; take 9 a; effects; dead a:3; left", true},                             // all attempts failed
	{"enqueue a; take 5 a:2; take 7 unknown; take 9 a:3; effects; dead a:3; left", true},                   // not all were told of
	{"enqueue a; take 5 a; bury 5 unknown a; effects; dead a:1; left", true},                               // it was done
	{"enqueue a; take 5 a; bury 5 no a; take 7 a; ack 7 a; effects a:7; dead; left", true},                 // it was overtaken
	{"enqueue a; take no; take 5 a; ack 5 unknown a; retry 5 unknown a; effects a:5; dead; left", true},    // either
	{"[ enqueue a; take 5 a ]; ack 5 a; effects a:5; dead; left", true},                                    // its answer was late
	{"enqueue a; effects; dead; left", false},                                                              // lost
	{"enqueue a; take 5 a; retry 5 a; effects; dead; left", false},                                         // the same, by a retry
	{"enqueue a; take 5 a; ack 5 unknown a; effects; dead; left", false},                                   // the same, by half an ack
	{"enqueue a; take 5 a; ack 5 a; effects; dead; left", false},                                           // without its effect
	{"enqueue a; take 5 a; ack 5 a; effects a:5:2; dead; left", false},                                     // an effect twice
	{"enqueue a; take 5 a; ack 5 unknown a; take 7 a; ack 7 a; effects a:7:2; dead; left", false},          // the same
	{"enqueue a; take 5 a; ack 5 a; effects a:5 more; dead; left", false},                                  // one that is not there
	{"enqueue a; take 5 a; ack 5 a; effects a:5 b:7; dead; left", false},                                   // of what was never enqueued
	{"enqueue a; take 5 a; ack 5 a; take 7 b; effects a:5; dead; left", false},                             // taken
	{"enqueue a; take 5 a; ack 5 a; effects a:5; dead b:3; left", false},                                   // dead
	{"enqueue no a; take 5 a; ack 5 a; effects a:5; dead; left", false},                                    // what was refused
	{"enqueue unknown a; take 5 a:1:x; ack 5 a; take 7 a:2:y; ack 7 no a; effects a:5; dead; left", false}, // enqueued twice
	{"enqueue unknown a; take 5 a:1:x; take 7 a:2:y; ack 7 a; effects a:7; dead; left", false},             // the same
	{"enqueue unknown a; take 5 a:1:x; bury 5 unknown a; effects; dead a:2:y; left", false},                // the same
	{"enqueue a; enqueue a; take 5 a; ack 5 a; effects a:5; dead; left", false},                            // one that is there
	{"enqueue unknown a b; take 5 a; ack 5 a; effects a:5; dead; left", false},                             // half of them
	{"enqueue a; take 5 a; ack 5 a; take 7 a; effects a:5; dead; left", false},                             // taken after its end
	{"enqueue a; take 5 a; bury 5 a; take 7 a; effects; dead a:1; left", false},                            // the same
	{"enqueue a; take 5 a; ack 5 unknown a; take 7 a; effects a:5; dead; left", false},                     // nobody knew that
	{"enqueue a; take 5 a; ack 5 a; take 7 a; ack 7 a; effects a:7; dead; left", false},                    // two have ended it
	{"enqueue a; take 5 a; take 7 a; ack 5 a; effects a:5; dead; left", false},                             // by one that was overtaken
	{"enqueue a; take 5 a; take 7 a; ack 5 no a; ack 7 unknown a; effects a:5; dead; left", false},         // it was told otherwise
	{"enqueue a; take 5 a; retry 5 a; effects a:5; dead; left", false},                                     // the same
	{"enqueue a; take 5 a; take 7 a; ack 7 a; effects a:5; dead; left", false},                             // of another attempt
	{"enqueue a; take 7 a; take 5 a; ack 7 a; effects a:7; dead; left", false},                             // tokens fall
	{"enqueue a; take 5 a; take 5 a; ack 5 a; effects a:5; dead; left", false},                             // a token again
	{"enqueue a; take 5 a; take 7 a:1; ack 7 a; effects a:7; dead; left", false},                           // an attempt again
	{"enqueue a; take 5 a; take 7 a; take 9 a; take 11 a; ack 11 a; effects a:11; dead; left", false},      // too many
	{"enqueue a; take 5 a; effects; dead a:2; left", false},                                                // given up too soon
	{"enqueue a; take 5 a; bury 5 no a; effects; dead a:1; left", false},                                   // the same
	{"enqueue a; take 5 a; bury 5 a; effects; dead; left", false},                                          // not given up
	{"enqueue a; take 5 a; ack 5 unknown a; bury 5 unknown a; effects a:5; dead a:1; left", false},         // and both
	{"take 5 a; enqueue a; ack 5 a; effects a:5; dead; left", false},                                       // too soon
	{"enqueue a; ack 5 a; effects a:5; dead; left", false},                                                 // nobody took it
	{"enqueue a; effects; dead; left 1", false},                                                            // nobody gets it
	{"enqueue a; take 5 a; ack 5 a; effects a:5; dead", false},                                             // nobody has looked
}

// readWork makes calls of such a script.
func readWork(script string) []call {
	var all []call
	attempts := map[string]int64{}
	middle, together := int64(1000), false
	for _, text := range strings.Split(script, ";") {
		c := call{ID: strconv.Itoa(len(all)), Process: "1", Object: "work", Name: "x", Result: "yes"}
		for _, word := range strings.Fields(text) {
			name, rest, _ := strings.Cut(word, ":")
			first, second, _ := strings.Cut(rest, ":")
			n, err := strconv.ParseInt(word, 10, 64)
			number, _ := strconv.ParseInt(first, 10, 64)
			switch {
			case word == "[":
				together = true
				middle += 1000
			case word == "]":
				together = false
			case c.Op == "":
				c.Op = word
			case word == "no" || word == "unknown":
				c.Result = word
			case err == nil && c.Op == "left":
				c.Amount = n
			case err == nil:
				c.Token = n
			case c.Op == "enqueue":
				c.Writes = put(c.Writes, name, "")
			case c.Op == "effects" && word == "more":
				c.Amount++
			case c.Op == "effects":
				times := int64(1)
				if second != "" {
					times, _ = strconv.ParseInt(second, 10, 64)
				}
				c.Amount += times
				c.Events = append(c.Events, change{Key: name, Now: version{Revision: number, Version: times}})
			case c.Op == "dead":
				c.Events = append(c.Events, change{Key: name, Now: version{Value: name + "-id" + second, Version: number}})
			default:
				c.Value = name
				if c.Op == "take" {
					attempts[name]++
					c.Amount = attempts[name]
					if number != 0 {
						c.Amount = number
						attempts[name] = number
					}
					c.Reads = put(c.Reads, "id", name+"-id"+second)
				}
			}
		}
		if c.Op == "dead" {
			c.Amount = 3
		}
		if !together && !strings.Contains(text, "]") {
			middle += 1000
		}
		c.Call, c.Return = middle-100, middle+100
		if c.Result == "unknown" {
			c.Return = forever
		}
		all = append(all, c)
	}
	return all
}

func testWork(check func(ok bool, what string)) {
	for _, s := range workScripts {
		verdict := judge(readWork(s.calls), time.Minute)
		check(s.possible == (verdict == ""), fmt.Sprintf("work: %s: it says %q", s.calls, verdict))
	}
}
