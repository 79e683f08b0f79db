// SPDX-License-Identifier: BSL-1.0

package main

import (
	"bufio"
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"time"
)

// The test of the judge itself: what can have happened, and what cannot. Calls are told one after
// the other, with their token, and with "no" or "unknown" if they did not succeed. Those of a pair
// of brackets overlap.
var scripts = []struct {
	object, calls string
	possible      bool
}{
	{"mutex", "lock 5; owns 5; write 5; unlock 5; try_lock 9; unlock 9", true},
	{"mutex", "lock 5; lock 9; unlock 9", true},                                         // the first lost it
	{"mutex", "lock 5; lock 9; write 5 no; unlock 5 no; write 9; unlock 9", true},       // and was told
	{"mutex", "lock 5; owns 5; lock 0 unknown; try_lock 0 no; unlock 5; lock 12", true}, // others failed
	{"mutex", "lock 5; unlock 5 unknown; lock 9; unlock 9", true},                       // given back, or not
	{"mutex", "lock 5; [ owns 5; lock 9 ]; owns 9", true},                               // in this order
	{"mutex", "lock 5; [ lock 9; owns 5 ]; owns 9", true},                               // in the other one
	{"mutex", "lock 5; owns 5 no; write 5; unlock 5", true},                             // it did not trust its clock
	{"mutex", "lock 5; lock 9; owns 5", false},                                          // two hold it
	{"mutex", "lock 5; lock 9; write 5", false},                                         // two write
	{"mutex", "lock 5; lock 9; unlock 5", false},                                        // it gives back what it lost
	{"mutex", "lock 5; [ lock 9; owns 5 ]; owns 9; owns 5", false},                      // no order helps
	{"mutex", "lock 9; unlock 9; lock 5; unlock 5", false},                              // tokens fall
	{"mutex", "lock 9; unlock 9; lock 5", false},                                        // the same, of a short one
	{"mutex", "lock 5; unlock 5; lock 5; unlock 5", false},                              // a token again
	{"mutex", "lock 5; unlock 5; write 5", false},                                       // after it was given back
	{"mutex", "lock 5; write 5 no; write 5", false},                                     // lost, and not lost
	{"mutex", "lock 5; write 5 no; owns 5", false},                                      // the clock is wrong
	{"mutex", "lock 5; unlock 7", false},                                                // this was not given
	{"shared_mutex", "lock_shared 5 shared; lock_shared 6 shared; owns 5 shared; owns 6 shared; unlock 6; unlock 5; lock 9; unlock 9", true},
	{"shared_mutex", "lock 5; downgrade 5; lock_shared 9 shared; owns 5 shared; owns 9 shared; unlock 5; unlock 9", true},
	{"shared_mutex", "lock_shared 5 shared; upgrade 5; write 5; unlock 5; lock_shared 9 shared", true},
	{"shared_mutex", "lock_shared 6 shared; lock_shared 5 shared; unlock 6; unlock 5", true},   // readers overtake
	{"shared_mutex", "lock 5; downgrade 5 unknown; lock_shared 9 shared; owns 5 shared", true}, // it was done
	{"shared_mutex", "lock 5; downgrade 5 unknown; owns 5 shared; lock 9; write 5 no", true},   // either way
	{"shared_mutex", "lock_shared 5 shared; upgrade 5 no; owns 5 shared; unlock 5", true},
	{"shared_mutex", "lock 5; lock_shared 9 shared; write 5", false},                                // it reads beside a writer
	{"shared_mutex", "lock_shared 5 shared; lock 9; owns 5 shared", false},                          // it writes beside a reader
	{"shared_mutex", "lock 5; lock 9; write 5", false},                                              // two writers
	{"shared_mutex", "lock 9; unlock 9; lock_shared 5 shared", false},                               // a reader before the last writer
	{"shared_mutex", "lock_shared 9 shared; unlock 9; lock 5", false},                               // a writer before the last reader
	{"shared_mutex", "lock 5; downgrade 5; write 5", false},                                         // it writes as a reader
	{"shared_mutex", "lock_shared 5 shared; lock_shared 6 shared; upgrade 5; owns 6 shared", false}, // beside another reader
	{"shared_mutex", "lock_shared 5 shared; upgrade 5; lock_shared 9 shared; write 5", false},       // a reader beside it
	{"semaphore", "limit 3; acquire 5 amount=2; acquire 6 amount=1; owns 5; release 5; acquire 9 amount=2; owns 6; release 9; release 6", true},
	{"semaphore", "limit 1; acquire 9 amount=1; release 9; acquire 5 amount=1; release 5", true}, // in any order
	{"semaphore", "limit 2; acquire 5 amount=2; limit 1; owns 5; release 5; acquire 6 amount=1", true},
	{"semaphore", "limit 1; limit 2 unknown; acquire 5 amount=2; release 5", true},              // it was done
	{"semaphore", "limit 1; acquire 5 amount=1; acquire 6 amount=1; release 6", true},           // the first lost it
	{"semaphore", "limit 1; acquire 5 amount=2", false},                                         // too much at once
	{"semaphore", "limit 2; acquire 5 amount=2; acquire 6 amount=1; owns 5", false},             // too much in all
	{"semaphore", "limit 2; acquire 5 amount=2; limit 1; release 5; acquire 6 amount=2", false}, // after it was lowered
	{"semaphore", "limit 2; acquire 5 amount=1; acquire 5 amount=1", false},                     // a token again
	{"semaphore", "limit 2; acquire 5 amount=1; release 5; owns 5", false},                      // after it was given back
	{"election", "leader 0 no; campaign 5 value=a; leader 5 value=a; proclaim 5 value=b; leader 5 value=b; resign 5; leader 0 no; campaign 9 value=c", true},
	{"election", "leader 5 value=a; campaign 5 value=a; leads 5; resign 5", true}, // it did not know yet
	{"election", "campaign 5 value=a; leader 7 value=b; campaign 9 value=c; leader 9 value=c", true},
	{"election", "campaign 5 value=a; proclaim 5 unknown value=b; leader 5 value=a; leader 5 value=b", true},
	{"election", "campaign 5 value=a; campaign 9 value=b; resign 5 no; leader 9 value=b; leads 9", true},
	{"election", "campaign 5 value=a; resign 5 no; leader 5 value=a", true}, // lost by its own clock
	{"election", "campaign 5 value=a; observe 5; observe 9; campaign 9 value=b", true},
	{"election", "campaign 5 value=a; campaign 9 value=b; leads 5", false},                              // two lead
	{"election", "campaign 5 value=a; leader 9 value=b; proclaim 5 value=c", false},                     // the same, as told to a caller
	{"election", "campaign 5 value=a; leader 0 no; leads 5", false},                                     // none, and one
	{"election", "campaign 5 value=a; campaign 9 value=b; leader 5 value=a", false},                     // back to a former one
	{"election", "campaign 5 value=a; resign 5; leader 5 value=a", false},                               // after it has resigned
	{"election", "campaign 5 value=a; leader 5 value=b", false},                                         // what was never said
	{"election", "campaign 5 value=a; proclaim 5 value=b; proclaim 5 value=c; leader 5 value=b", false}, // an older one comes late
	{"election", "campaign 9 value=a; resign 9; campaign 5 value=b", false},                             // terms fall
	{"election", "campaign 5 value=a; campaign 9 value=b; observe 9; observe 5", false},                 // a feed goes back
	{"stm", "txn 1 write=a:5 write=b:5; txn 2 read=a:5 read=b:5 write=a:4 write=b:6; txn 0 read=a:4 read=b:6", true},
	{"stm", "txn 1 write=a:5; txn 0 unknown read=a:5 write=a:4; txn 0 read=a:5; txn 0 read=a:4", true}, // at any time
	{"stm", "txn 1 write=a:5; txn 0 unknown read=a:5 write=a:4; txn 3 read=a:5 write=a:6; txn 0 read=a:6", true},
	{"stm", "txn 0 read=a: ; [ txn 2 read=a: write=a:1; txn 0 read=a: ]", true},
	{"stm", "txn 1 write=a:5; txn 2 read=a:5 write=a:4; txn 3 read=a:5 write=a:3", false},                                 // a lost update
	{"stm", "txn 1 write=a:5 write=b:5; txn 2 write=a:4 write=b:6; txn 0 read=a:4 read=b:5", false},                       // half of it
	{"stm", "txn 1 write=a:5; txn 2 write=a:6; txn 0 read=a:5", false},                                                    // an old state
	{"stm", "txn 1 write=a:5; txn 0 unknown read=a:5 write=a:4; txn 0 read=a:4; txn 0 read=a:3", false},                   // twice
	{"stm", "txn 1 write=a:1 write=b:1; [ txn 3 read=a:1 read=b:1 write=a:0; txn 2 read=a:1 read=b:1 write=b:0 ]", false}, // write skew
	{"stm", "txn 2 write=a:5; txn 1 write=b:5", false},                                                                    // revisions fall
	{"sequence", "next 1; next 2; [ next 4; next 3 ]; next 5", true},
	{"sequence", "next 1; next 0 unknown; next 3", true},  // that took one
	{"sequence", "next 1; next 0 unknown; next 2", true},  // or did not
	{"sequence", "next 1; next 2; next 2", false},         // a number again
	{"sequence", "next 1; next 3", false},                 // one is missing
	{"sequence", "next 1; next 3; next 0 unknown", false}, // too late to have taken it
	{"sequence", "next 2; next 1", false},                 // they fall
}

// The same of watches. Keys are written as `key`, and erased as `-key`. What a watch tells is
// `revision:key`, and right but for what follows it: a wrong value, version, creation, or former
// version. A watch is of all keys, or of what is between slashes; `2/see` is the second process's.
var watchScripts = []struct {
	calls    string
	possible bool
}{
	{"begin 5; write 5 a b; see 5 5:a 5:b; write 6 a -b; see 6 6:a 6:-b; write 9 b; see 9 9:b", true},
	{"begin 5; write 5 a b; write 6 a -b; see 6 5:a 5:b 6:a 6:-b", true},
	{"begin 5; write 5 a; see 5 5:a; resume; write 6 a; see 6 6:a", true},
	{"begin 6; write 5 a; write 6 a; see 6 6:a", true},                              // not from the beginning
	{"begin 5; write 5 a -b; see 5 5:a; write 7 b; see 9 7:b; see 9; see 12", true}, // there was none to erase
	{"begin 5; write 0 unknown a; see 5 5:a; write 7 a; see 7 7:a", true},           // it was done
	{"begin 5; write 0 unknown a; write 7 a; see 7 7:a", true},                      // it was not
	{"begin 5; write 0 no a; write 7 a; see 7 7:a", true},
	{"begin 5; write 5 a; write 6 -a; write 7 a; see 7 5:a 6:-a 7:a", true},
	{"begin 5 /b; write 5 a b; see 5 5:b; write 6 a; write 7 b; see 7 7:b", true},
	{"begin 5; 2/begin 5 /b; write 5 a b; see 5 5:a 5:b; 2/see 5 5:b", true},
	{"begin 5; write 5 a; write 6 a; see 6 6:a", false},                               // a gap
	{"begin 5; write 5 a; see 5 5:a; resume; write 6 a; write 7 a; see 7 7:a", false}, // the same
	{"begin 5; write 5 a; see 5", false},                                              // progress over a change
	{"begin 5; write 5 a; write 6 a; see 6 5:a 6:a; see 6 6:a", false},                // twice
	{"begin 5; write 5 a; see 5 5:a 5:a", false},                                      // at once
	{"begin 5; write 5 a; see 5 5:a; resume; see 5 5:a", false},                       // after it has resumed
	{"begin 5; write 5 a; write 6 b; see 6 6:b 5:a", false},                           // disorder
	{"begin 5; write 5 a; write 6 b; see 6 6:b; see 6 5:a", false},
	{"begin 5; write 5 a; see 9 5:a; see 8", false},         // back
	{"begin 5; write 5 a b; see 5 5:a", false},              // half of it
	{"begin 5; write 5 a b; see 5 5:a; see 5 5:b", false},   // and the rest
	{"begin 5; write 5 a; write 6 a; see 5 5:a 6:a", false}, // ahead of what it says
	{"begin 6; write 5 a; write 6 a; see 6 5:a 6:a", false}, // before its begin
	{"begin 5 /b; write 5 a b; see 5 5:a 5:b", false},       // what was not asked for
	{"begin 5; write 5 a; see 5 5:a:value", false},
	{"begin 5; write 5 a; see 6 6:a", false}, // another revision
	{"begin 5; write 0 unknown a; see 5 5:b", false},
	{"begin 5; write 0 no a; see 5 5:a", false}, // what was refused
	{"begin 5; write 5 a; see 5 5:-a", false},
	{"begin 5; write 5 a; write 6 -a; see 6 5:a 6:a", false},
	{"begin 5; write 5 a; write 6 a; see 6 5:a 6:a:version", false},
	{"begin 5; write 5 a; write 6 a; see 6 5:a 6:a:create", false},
	{"begin 5; write 5 a; write 6 -a; write 7 a; see 7 5:a 6:-a 7:a:create", false},
	{"begin 5; write 5 a; write 6 a; see 6 5:a 6:a:before", false},
	{"begin 5; write 5 a; write 5 b; see 5 5:a 5:b", false},              // a revision of two
	{"begin 5; 2/begin 5; write 0 unknown a; see 5 5:a; 2/see 9", false}, // one watch knows better
	{"write 5 a", false}, // it is not looked at
	{"see 5", false},
}

// readWatches makes calls of such a script.
func readWatches(script string) []call {
	var all []call
	wrote := map[int64]string{} // the id, by the revision
	writes := map[string]map[int64]version{}
	keys := map[string]string{}
	for _, text := range strings.Split(script, ";") {
		words := strings.Fields(text)
		process, op, told := strings.Cut(words[0], "/")
		if !told {
			process, op = "1", process
		}
		c := call{ID: fmt.Sprintf("c%d", len(all)), Process: process, Object: "watch", Name: "x", Op: op, Result: "yes"}
		c.Call = int64(len(all)*10 + 1)
		c.Return = c.Call + 5
		if op == "begin" {
			keys[process] = "x/"
		}
		var n int64
		for i, word := range words[1:] {
			at, rest, isEvent := strings.Cut(word, ":")
			number, err := strconv.ParseInt(word, 10, 64)
			switch {
			case i == 0 && err == nil:
				n = number
			case word == "no" || word == "unknown":
				c.Result = word
			case op == "begin":
				keys[process] = "x" + word
			case op == "write":
				key := "x/" + strings.TrimPrefix(word, "-")
				content := c.ID + " long"
				if word[0] == '-' {
					content = ""
				}
				c.Writes = put(c.Writes, key, content)
			case isEvent:
				name, wrong, _ := strings.Cut(rest, ":")
				revision, _ := strconv.ParseInt(at, 10, 64)
				key := "x/" + strings.TrimPrefix(name, "-")
				e := change{Key: key, Erased: name[0] == '-'}
				e.Now = version{Revision: revision}
				var before version // the last one
				for r := range revision {
					if v, known := writes[key][r]; known {
						before = v
					}
				}
				if before.Version != 0 {
					e.Before = &before
				}
				if !e.Erased {
					by := wrote[revision]
					if by == "" {
						by = wrote[0]
					}
					e.Now = version{by + " long", revision, revision, before.Version + 1}
					if e.Before != nil {
						e.Now.Create = before.Create
					}
				}
				if writes[key] == nil {
					writes[key] = map[int64]version{}
				}
				writes[key][revision] = e.Now
				switch wrong {
				case "value":
					e.Now.Value = "c99 long"
				case "version":
					e.Now.Version++
				case "create":
					e.Now.Create--
				case "before":
					e.Before = &version{"c99 long", 1, 1, 1}
				}
				c.Events = append(c.Events, e)
			default:
				panic("what is " + word + " in " + script)
			}
		}
		switch op {
		case "begin":
			c.Amount, c.Value = n, keys[process]
		case "write":
			c.Token = n
			wrote[n] = c.ID
			for key, content := range c.Writes { // also of those that are not told
				if writes[key] == nil {
					writes[key] = map[int64]version{}
				}
				if c.Result == "yes" && n != 0 {
					writes[key][n] = written(writes[key], content, n)
				}
			}
		default:
			c.Token, c.Value = n, keys[process]
		}
		all = append(all, c)
	}
	return all
}

// written is what a key becomes.
func written(of map[int64]version, content string, at int64) version {
	var before version
	for r := range at {
		if v, known := of[r]; known {
			before = v
		}
	}
	if content == "" {
		return version{}
	}
	if before.Version == 0 {
		before.Create = at
	}
	return version{content, at, before.Create, before.Version + 1}
}

// read makes calls of a script. All that a call does happens in its middle, and it begins and ends
// at most so far from there.
func read(object, script string, spread func() int64) []call {
	var all []call
	middle, together := int64(1000), false
	for _, text := range strings.Split(script, ";") {
		c := call{ID: strconv.Itoa(len(all)), Process: "1", Object: object, Name: "x", Result: "yes"}
		for _, word := range strings.Fields(text) {
			name, value, set := strings.Cut(word, "=")
			key, content, _ := strings.Cut(value, ":")
			n, err := strconv.ParseInt(word, 10, 64)
			switch {
			case word == "[":
				together = true
				middle += 1000
			case word == "]":
				together = false
			case word == "no" || word == "unknown":
				c.Result = word
			case word == "shared":
				c.Shared = true
			case set && name == "amount":
				c.Amount, _ = strconv.ParseInt(value, 10, 64)
			case set && name == "value":
				c.Value = value
			case set && name == "read":
				c.Reads = put(c.Reads, key, content)
			case set && name == "write":
				c.Writes = put(c.Writes, key, content)
			case err == nil && (c.Op == "limit" || c.Op == "next"):
				c.Amount = n
			case err == nil:
				c.Token = n
			case c.Op == "":
				c.Op = word
			default:
				panic("what is " + word + " in " + script)
			}
		}
		if !together && !strings.Contains(text, "]") {
			middle += 1000
		}
		c.Call, c.Return = middle-spread(), middle+spread()
		if c.Result == "unknown" {
			c.Return = forever
		}
		all = append(all, c)
	}
	return all
}

func put(all map[string]string, key, value string) map[string]string {
	if all == nil {
		all = map[string]string{}
	}
	all[key] = value
	return all
}

// long is a script of many grants, one after the other.
func long(take, give string) string {
	var words []string
	for i := range 3000 {
		words = append(words, fmt.Sprintf("%s %d value=a", take, 2*i+1), fmt.Sprintf("%s %d", give, 2*i+1))
	}
	return strings.Join(words, ";")
}

func test() int {
	passed, failed := 0, 0
	check := func(ok bool, what string) {
		if ok {
			passed++
		} else {
			failed++
			fmt.Println("FAILED: " + what)
		}
	}
	random := rand.New(rand.NewSource(1))
	narrow := func() int64 { return 100 }
	wide := func() int64 { return random.Int63n(3000) }
	for _, s := range scripts {
		verdict := judge(read(s.object, s.calls, narrow), time.Minute)
		if s.possible {
			check(verdict == "", s.object+": "+s.calls+": "+verdict)
			if !strings.Contains(s.calls, "[") {
				verdict = judge(read(s.object, s.calls, wide), time.Minute)
				check(verdict == "", "with calls that overlap, "+s.object+": "+s.calls+": "+verdict)
			}
		} else {
			refused := verdict != "" && !strings.HasPrefix(verdict, "undecided") && !strings.HasPrefix(verdict, "no such")
			check(refused, "not refused: "+s.object+": "+s.calls+": "+verdict)
		}
	}
	for _, s := range watchScripts {
		verdict := judge(readWatches(s.calls), time.Minute)
		check(s.possible == (verdict == ""), fmt.Sprintf("watch: %s: it says %q", s.calls, verdict))
	}
	testMirrors(check)
	testWork(check)
	for object, calls := range map[string]string{
		"mutex":    long("lock", "unlock"),
		"election": long("campaign", "resign"),
	} {
		verdict := judge(read(object, calls, wide), time.Minute)
		check(verdict == "", "a long history of a "+object+": "+verdict)
		verdict = judge(read(object, calls+"; "+strings.Split(calls, ";")[1], wide), time.Minute)
		check(verdict != "", "not refused at the end of a long history of a "+object)
	}

	const begin = `{"id":"1","process":"1","call":5,"object":"mutex","name":"x","op":"lock"}` + "\n"
	const end = `{"id":"1","process":"1","call":5,"object":"mutex","name":"x","op":"lock","return":7,"result":"yes","token":5}` + "\n"
	for text, calls := range map[string]int{
		begin:                1, // it died
		begin + end:          1,
		"":                   0,
		end:                  -1,
		begin + begin:        -1,
		begin + end + end:    -1,
		begin + "{}\n":       -1,
		begin + end[:20]:     -1,
		`{"token":"5"}`:      -1,
		`{"knows":"better"}`: -1,
		begin + strings.Replace(end, "yes", "maybe", 1):             -1,
		begin + strings.Replace(end, `"return":7`, `"return":4`, 1): -1,
	} {
		all, err := parse(bufio.NewScanner(strings.NewReader(text)))
		check(len(all) == max(calls, 0) && (err == nil) == (calls >= 0), "lines of a history: "+text)
	}
	fmt.Printf("the judge: %d passed, %d failed\n", passed, failed)
	if failed != 0 {
		return 1
	}
	return 0
}
