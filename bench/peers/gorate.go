// Go's golang.org/x/time/rate, Limiter.Allow(), as a worker that a benchmark driver can interleave with others.
//
// Prints "ready" once warmed up. Then, a line a request on stdin:
//
//	run SCENARIO THREADS OPS   each of THREADS goroutines does OPS decisions; answers "SCENARIO THREADS NS_PER_OP" with
//	                           ns_per_op = wall_ns / OPS, wall_ns from the first one's start to the last one's end.
//	                           (So two that do not hinder each other show the same figure as one.)
//	quit
//
// Anything else is answered by a line "error …".
//
//	hot-allowed  one limiter for all, a thousand million a second: never denies
//	hot-denied   one limiter, one event in eleven days, taken: always denies
//	million      a million limiters of 1000/s, burst 1000, in a sync.Map by name ("user:0000000"), random order, a prng each.
//	             The names to look up are already in interfaces (else each lookup would allocate one) and share their
//	             bytes with the map's, so that none is compared: both flatter the peer.
//	memory       bytes per key: heap after collection, with a million limiters in a map less without; the names not counted
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const keys = 1000000

var (
	allowed = rate.NewLimiter(1e9, 1000000000)
	denied  = rate.NewLimiter(1e-6, 1)
	names   [keys]interface{}
	limits  *sync.Map
	sink    uint64 // everything allowed is counted here, so that no decision can be optimized away
)

func hot(l *rate.Limiter, ops int) (n uint64) {
	for i := 0; i < ops; i++ {
		if l.Allow() {
			n++
		}
	}
	return n
}

func million(who int, ops int) (n uint64) {
	x := uint64(who+1)*0x9E3779B97F4A7C15 ^ uint64(time.Now().UnixNano())
	for i := 0; i < ops; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		v, _ := limits.Load(names[(x>>32)*keys>>32])
		if v.(*rate.Limiter).Allow() {
			n++
		}
	}
	return n
}

func populate() *sync.Map {
	m := new(sync.Map)
	for _, name := range names {
		m.Store(name, rate.NewLimiter(1000, 1000))
	}
	// Moves the entries to the part of the map that is read without its mutex.
	m.Range(func(_, _ interface{}) bool { return false })
	return m
}

func heap() uint64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

func memory() float64 {
	before := heap()
	m := populate()
	after := heap()
	runtime.KeepAlive(m)
	return float64(int64(after-before)) / keys
}

// measure runs loop in threads goroutines; expect is the share of allowed that must come out, or -1.
func measure(loop func(who int, ops int) uint64, threads, ops, expect int) (float64, error) {
	start := make([]time.Time, threads)
	end := make([]time.Time, threads)
	var sum uint64
	var there, done sync.WaitGroup
	there.Add(threads)
	done.Add(threads)
	for i := 0; i < threads; i++ {
		go func(i int) {
			runtime.LockOSThread()
			defer done.Done()
			there.Done()
			there.Wait()
			start[i] = time.Now()
			n := loop(i, ops)
			end[i] = time.Now()
			atomic.AddUint64(&sum, n)
		}(i)
	}
	done.Wait()
	first, last := start[0], end[0]
	for i := range start {
		if start[i].Before(first) {
			first = start[i]
		}
		if end[i].After(last) {
			last = end[i]
		}
	}
	atomic.AddUint64(&sink, sum)
	if expect >= 0 && sum != uint64(expect*threads*ops) {
		return 0, fmt.Errorf("allowed %d of %d", sum, threads*ops)
	}
	return float64(last.Sub(first).Nanoseconds()) / float64(ops), nil
}

func run(scenario string, threads, ops int) (float64, error) {
	switch scenario {
	case "hot-allowed":
		return measure(func(_ int, n int) uint64 { return hot(allowed, n) }, threads, ops, 1)
	case "hot-denied":
		return measure(func(_ int, n int) uint64 { return hot(denied, n) }, threads, ops, 0)
	case "million":
		return measure(million, threads, ops, -1)
	case "memory":
		return memory(), nil
	}
	return 0, fmt.Errorf("unknown scenario %s", scenario)
}

func answer(line string) (string, error) {
	w := strings.Fields(line)
	if len(w) != 4 || w[0] != "run" {
		return "", fmt.Errorf("expected: run SCENARIO THREADS OPS, or quit")
	}
	threads, err := strconv.Atoi(w[2])
	if err != nil {
		return "", err
	}
	ops, err := strconv.Atoi(w[3])
	if err != nil {
		return "", err
	}
	if threads < 1 || threads > 64 || ops < 1 && w[1] != "memory" {
		return "", fmt.Errorf("expected 1 to 64 threads and at least 1 op")
	}
	ns, err := run(w[1], threads, ops)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %.2f", w[1], threads, ns), nil
}

func main() {
	for i := range names {
		names[i] = fmt.Sprintf("user:%07d", i)
	}
	limits = populate()
	denied.Allow()
	for _, s := range []string{"hot-allowed", "hot-denied", "million"} {
		run(s, 1, 200000)
		run(s, 2, 100000)
	}
	runtime.GC()
	fmt.Println("ready")

	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		line := strings.TrimSpace(in.Text())
		if line == "quit" {
			break
		}
		if s, err := answer(line); err != nil {
			fmt.Println("error", err)
		} else {
			fmt.Println(s)
		}
	}
}
