// SPDX-License-Identifier: BSL-1.0

package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// monotonic tells the microseconds of a clock that all processes of this machine share.
func monotonic() int64 {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Sec*1e6 + now.Nsec/1e3
}

func ownCPU() float64 {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// cpuOf tells the seconds of processor time that another process has used: see proc(5).
func cpuOf(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var user, system float64
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	return (user + system) / 100
}

// resident tells the bytes of memory that this process occupies.
func resident() float64 {
	debug.FreeOSMemory()
	text, _ := os.ReadFile("/proc/self/statm")
	var all, inMemory float64
	fmt.Sscan(string(text), &all, &inMemory)
	return inMemory * float64(os.Getpagesize())
}

// A stretch of time, and the processor time of this process and of the server in it.
type stretch struct {
	server   int
	atServer float64
	client   float64
	began    time.Time
}

func begin(server int) stretch {
	return stretch{server, cpuOf(server), ownCPU(), time.Now()}
}

func (s stretch) seconds() float64   { return time.Since(s.began).Seconds() }
func (s stretch) clientCPU() float64 { return ownCPU() - s.client }
func (s stretch) serverCPU() float64 { return cpuOf(s.server) - s.atServer }

// share tells what both have used of one processor.
func (s stretch) share(into result) {
	into["client_percent"] = 100 * s.clientCPU() / s.seconds()
	into["server_percent"] = 100 * s.serverCPU() / s.seconds()
}

// perOperation tells what both have used for each of n operations, and the rate of those.
func (s stretch) perOperation(into result, n float64) {
	into["rate"] = n / s.seconds()
	into["client_us"] = s.clientCPU() * 1e6 / n
	into["server_us"] = s.serverCPU() * 1e6 / n
}

func millisecondsAt(all []time.Duration, fraction float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return all[int(fraction*float64(len(all)-1))].Seconds() * 1000
}
