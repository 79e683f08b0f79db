// SPDX-License-Identifier: BSL-1.0

package main

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// The same of mirrors. Writes are told as for watches; the patient watch sees them all, but `missed`
// ones, and keys that are `gone` by themselves. A reader is told `revision:key` by a change, or
// `revision=key` by a comparison, of what the key was at that revision. Those lists are right but for
// what follows: `value`, `version` or `before`. A snapshot, the truth and a list of members have the
// keys as of a revision; `told 6 slow` is of the other reader, and `2/told` of another process. A
// mirror is of all keys, or of what is between slashes.
var mirrorScripts = []struct {
	calls    string
	possible bool
}{
	{"write 5 a b; open 5; told 5 5=a 5=b; write 6 a -b; told 6 6:a 6:-b; write 9 b; told 10 9:b; told 10 slow 9=a 9=b; end 10", true},
	{"open 4; told 4; write 5 a b; write 6 a; told 6 5:a 5:b 6:a; told 4 slow; told 6 slow 6=a 6=b; snapshot 6 6:a 5:b", true},
	{"open 4; told 4; write 5 a b; write 6 -a; told 6 6=b; told 7 slow 7=b; wait 6; snapshot 7 5:b; truth 7 5:b; end 6", true}, // a came and went
	{"open 4; told 4; write 5 a; write 6 a; write 7 a; told 7 5:a 7=a; write 8 a; told 8 8:a", true},
	{"open 4; told 4; write 5 a; write 6 -a; write 7 a; told 5 5:a; told 7 7=a", true},
	{"open 4; told 4; write 5 a; write 6 a; told 6 5=a 6:a", true},
	{"open 4 /b; told 4; write 5 a b; write 6 a; write 7 a b; told 7 5:b 7:b; snapshot 7 7:b", true},
	{"open 4; told 4; write 5 a; told 5 5:a; open 5; told 5 5=a; told 5 slow 5=a; wait 5; snapshot 5 5:a; end 5", true},
	{"open 4; told 4; unknown 5 a; told 5 5:a; gone 6 a; told 6 6:-a; wait no 9; snapshot 6", true},
	{"write 5 a; write 6 b; feed; members 5:a 6:b; write 7 -a; members 6:b; write 8 a; members 6:b 8:a; settled 8", true},
	{"feed; members; write 5 a; write 6 b; members 5:a 6:b; write 7 a; members 7:a 6:b; settled 7", true}, // it skips one
	{"feed; write 5 a; members; members 5:a; write 6 -a; members; write 7 a; members 7:a", true},
	{"open 4; told 4; write 5 a; write 6 a; told 6 6:a", false},                         // a gap
	{"open 4; told 4; write 5 a; write 6 b; told 6 6:b", false},                         // the same, of another key
	{"open 4; told 4; write 5 a; told 5 5:a; write 6 a; told 7", false},                 // over a change
	{"open 4; told 4; write 5 a; write 6 b; told 6 5:a", false},                         // the same, at the end
	{"open 4; told 4; write 5 a; write 6 a; told 6 6=b", false},                         // another difference
	{"open 4; told 4; write 5 a b; write 6 a b; told 6 6=a", false},                     // half a difference
	{"open 4; told 4; write 5 a; told 5 5:a; write 6 -a; write 7 b; told 7 7=b", false}, // of a key that is gone
	{"write 5 a; open 5; told 5 5:a", false},                                            // it begins with a change
	{"write 5 a b; open 5; told 5 5=a", false},                                          // and not with all
	{"write 5 a; open 5; told 5", false},                                                // the same
	{"open 4; told 4; write 5 a; told 5 5:a; told 5 5:a", false},                        // twice
	{"open 4; told 4; write 5 a; told 5 5:a 5:a", false},                                // at once
	{"open 4; told 4; write 5 a; told 5 5:a; told 6 6=a", false},                        // no difference
	{"write 5 a; open 5; told 5 5=a; told 6 5=a", false},                                // from the beginning
	{"open 4; told 4; write 5 a; write 6 b; told 6 6:b 5:a", false},                     // disorder
	{"open 4; told 4; write 5 a; write 6 b; told 6 5:a 6:b; told 5", false},             // back
	{"open 4; told 4; write 5 a b; told 5 5:a", false},                                  // half of it
	{"open 4; told 4; write 5 a b; told 5 5:a; told 6 5:b", false},                      // and the rest
	{"open 4; told 4; write 5 a; write 6 a; told 5 5:a 6:a", false},                     // ahead of what it says
	{"open 4 /b; told 4; write 5 a b; told 5 5:a 5:b", false},                           // what was not asked for
	{"open 4; told 4; write 5 a; told 5 5:a:value", false},
	{"open 4; told 4; write 5 a; told 5 5:a:version", false},
	{"open 4; told 4; write 5 a; told 5 5=a:value", false},
	{"open 4; told 4; write 5 a; told 5 5:a:before", false},
	{"open 4; told 4; write 5 a; write 6 a; told 6 5:a 6:a:before", false},
	{"open 4; told 4; write 5 a; write 6 a; told 6 5:a 6:-a", false},
	{"open 4; told 4; write 5 a; write 6 b; told 6 5:a 6:a", false},                          // another key
	{"open 4; told 4; write 5 a; write 6 a; told 6 6:a 6=a", false},                          // both
	{"open 4; told 4; write 5 a; told 9 5:a", false},                                         // more than there is
	{"open 4; write 5 a; write 6 a; snapshot 6 5:a", false},                                  // not what there was
	{"open 4; write 5 a; write 6 b; snapshot 6 5:a", false},                                  // the same
	{"open 4; write 5 a; write 6 -a; snapshot 6 5:a", false},                                 // what is gone
	{"open 4; write 5 a b; snapshot 5 5:a", false},                                           // half of it
	{"open 4; write 5 a; write 6 a; snapshot 5 6:a", false},                                  // ahead of what it says
	{"open 4; write 5 a; write 6 a; snapshot 6 6:a; snapshot 5 5:a", false},                  // back
	{"open 4; told 4; write 5 a; write 6 a; told 6 5:a 6:a; snapshot 5 5:a", false},          // the same
	{"open 4; write 5 a; write 6 a; wait 6; snapshot 5 5:a", false},                          // it had that
	{"open 4; write 5 a; write 6 a; truth 6 5:a", false},                                     // the patient watch is wrong
	{"open 4; told 4; told 4 slow; write 5 a; told 5 5:a; wait 5; end 5", false},             // one of them never comes
	{"open 4; told 4; told 4 slow; write 5 a; told 5 5:a; told 5 slow 5:a; end no 5", false}, // the same
	{"open 4; told 4; write 5 a; 3/told 5 5:a", false},                                       // of another one
	{"open 4; missed 5 a; told 4", false},                                                    // the patient watch is not
	{"open 4; told 4; write 5 a; write 6 b; unknown 7 a; told 7 5:a 6:b 7:b", false},         // another key
	{"write 5 a; write 6 a; feed; members 6:a; members 5:a", false},                          // an older list
	{"write 5 a; write 6 -a; write 7 b; feed; members 7:b; members", false},                  // the same
	{"write 5 a; write 6 b; feed; members 6:b", false},                                       // one is missing
	{"write 5 a; write 6 b; feed; members 6:b 5:a", false},                                   // disorder
	{"write 5 a; feed; members 5:a; members 5:a", false},                                     // nothing new
	{"write 5 a; feed; members 5:a 5:a", false},                                              // twice
	{"write 5 a; feed; members 5:a:value", false},
	{"write 5 a; feed; members 5:a; write 6 b; settled 6", false}, // it does not end with the truth
	{"write 5 a; feed; members 5:a; write 6 b; settled no 6", false},
	{"write 5 a; feed; members no", false},        // an outage is no end
	{"open 4; told 4; write 5 a; told no", false}, // the same
	{"write 5 a", false}, // nobody mirrors
}

// readMirrors makes calls of such a script, and adds what has to be there.
func readMirrors(script string) []call {
	watched, seen, last := []string{"begin 1"}, "", int64(1)
	var others []string
	for _, text := range strings.Split(script, ";") {
		words := strings.Fields(text)
		revision := words[1:min(2, len(words))]
		switch words[0] {
		case "write", "missed":
			watched = append(watched, strings.Join(append([]string{"write"}, words[1:]...), " "))
		case "unknown":
			watched = append(watched, "write 0 unknown "+strings.Join(words[2:], " "))
		case "gone":
			words[2] = "-" + words[2]
		default:
			others = append(others, text)
			continue
		}
		last, _ = strconv.ParseInt(revision[0], 10, 64)
		for _, key := range words[2:] {
			if words[0] != "missed" {
				seen += " " + revision[0] + ":" + key
			}
		}
	}
	watched = append(watched, fmt.Sprintf("see %d%s", last+1, seen))
	all := readWatches(strings.Join(watched, ";"))
	happened := newChronicle(all)
	keeps := map[string]state{} // by the reader
	for _, text := range others {
		words := strings.Fields(text)
		process, op, named := strings.Cut(words[0], "/")
		if !named {
			process, op = "2", process
		}
		c := call{ID: fmt.Sprintf("m%d", len(all)), Process: process, Op: op, Result: "yes"}
		c.Value = map[string]string{"open": "x/", "truth": "x/", "feed": "x/"}[op]
		for _, word := range words[1:] {
			at := strings.IndexAny(word, ":=")
			n, err := strconv.ParseInt(word, 10, 64)
			switch {
			case err == nil:
				c.Token = n
			case word == "no":
				c.Result = word
			case word == "slow":
				c.Amount = 1
			case word[0] == '/':
				c.Value = "x" + word
			default:
				revision, _ := strconv.ParseInt(word[:at], 10, 64)
				name, wrong, _ := strings.Cut(word[at+1:], ":")
				reader := fmt.Sprint(process, c.Amount)
				if keeps[reader] == nil {
					keeps[reader] = state{}
				}
				c.Events = append(c.Events, planted(happened, keeps[reader], c, revision, word[at] == '=', name, wrong))
			}
		}
		if op == "open" {
			maps.DeleteFunc(keeps, func(reader string, _ state) bool { return strings.HasPrefix(reader, process) })
		}
		all = append(all, c)
	}
	if script != "write 5 a" && !strings.Contains(script, "end") {
		all = append(all, caughtUp("4")...)
	}
	for i := range all {
		all[i].Object, all[i].Name = "mirror", "x"
	}
	return all
}

// caughtUp are the calls of a process that mirrors what is never there.
func caughtUp(process string) []call {
	var all []call
	for i, op := range []string{"open", "told", "told", "wait", "end"} {
		c := call{ID: "end" + strconv.Itoa(i), Process: process, Op: op, Result: "yes", Token: 1}
		if op == "open" {
			c.Value = "nothing"
		}
		c.Amount = map[int]int64{2: 1}[i]
		all = append(all, c)
	}
	return all
}

// planted is what is told of a key.
func planted(of chronicle, keeps state, c call, revision int64, compared bool, name, wrong string) change {
	key := "x/" + strings.TrimPrefix(name, "-")
	e := change{Key: key, Erased: name[0] == '-', Now: of.of(spectator{keys: key}, revision)[key]}
	if c.Op != "told" {
		if wrong != "" {
			e.Now.Value = "c99 long"
		}
		if c.Op == "members" {
			e.Now.Version = 0
		}
		return e
	}
	if e.Erased {
		e.Now = version{Revision: revision}
	}
	if e.Now.Revision == 0 { // there was no such change
		e.Now.Revision = revision
	}
	if before, known := keeps[key]; known {
		e.Before = &before
	}
	if compared {
		e.At = revision
	}
	keeps.become(e)
	switch wrong {
	case "value":
		e.Now.Value = "c99 long"
	case "version":
		e.Now.Version++
	case "before":
		e.Before = &version{"c99 long", 1, 1, 1}
	}
	return e
}

func testMirrors(check func(ok bool, what string)) {
	for _, s := range mirrorScripts {
		verdict := judge(readMirrors(s.calls), time.Minute)
		check(s.possible == (verdict == ""), fmt.Sprintf("mirror: %s: it says %q", s.calls, verdict))
	}
}
