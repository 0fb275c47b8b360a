// Go's redigo against a running `weir serve`.
//
//	go run resp_clients.go PORT TOKEN     TOKEN "" where none is asked for
//
// Prints a line for what does not hold, then "N passed, N failed".
package main

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/gomodule/redigo/redis"
)

var passed, failed int
var counting sync.Mutex

func check(right bool, format string, words ...interface{}) {
	counting.Lock()
	defer counting.Unlock()
	if right {
		passed++
		return
	}
	failed++
	fmt.Printf("FAIL "+format+"\n", words...)
}

func row(reply interface{}, err error) []int64 {
	values, err := redis.Values(reply, err)
	if err != nil || len(values) < 6 {
		check(false, "no decision: %v %v", reply, err)
		return make([]int64, 6)
	}
	numbers, err := redis.Int64s(values[:6], err)
	check(err == nil, "no numbers: %v", err)
	return numbers
}

func refused(reply interface{}, err error, words string) {
	check(err != nil && strings.Contains(err.Error(), words), "%v instead of an error with %q: %v", reply, words, err)
}

func one(conn redis.Conn) {
	pong, err := redis.String(conn.Do("PING"))
	check(pong == "PONG" && err == nil, "ping: %v %v", pong, err)
	got := row(conn.Do("WEIR.TAKE", "go", "fixed-window 5/366d"))
	check(got[0] == 1 && got[1] == 5 && got[2] == 4, "take: %v", got)
	cell, err := redis.Int64s(conn.Do("CL.THROTTLE", "go-cell", 2, 30, 60))
	check(err == nil && fmt.Sprint(cell) == "[0 3 2 -1 2]", "CL.THROTTLE: %v %v", cell, err)
	reply, err := conn.Do("WEIR.TAKE", "k")
	refused(reply, err, "wrong number")
	reply, err = conn.Do("GET", "k")
	refused(reply, err, "unknown command")
	values, err := redis.Values(conn.Do("WEIR.TAKE", "go-receipt", "fixed-window 5/366d", "COST", 3))
	check(err == nil && len(values) == 7, "a receipt: %v %v", values, err)
	settled, err := redis.String(conn.Do("WEIR.SETTLE", "go-receipt", "fixed-window 5/366d", values[6], 0))
	check(settled == "OK" && err == nil, "settle: %v %v", settled, err)
}

func pipeline(conn redis.Conn) {
	for i := 0; i < 1000; i++ {
		check(conn.Send("WEIR.TAKE", "go-many", "fixed-window 1000/366d") == nil, "send")
	}
	conn.Flush()
	for i := int64(999); i >= 0; i-- {
		got := row(conn.Receive())
		check(got[2] == i, "%d is left, not %d", got[2], i)
	}
}

func pool(dial func() (redis.Conn, error)) {
	pool := redis.Pool{Dial: dial, MaxIdle: 4, MaxActive: 8, Wait: true}
	defer pool.Close()
	var group sync.WaitGroup
	for i := 0; i < 40; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			conn := pool.Get()
			defer conn.Close()
			for j := 0; j < 25; j++ {
				row(conn.Do("WEIR.TAKE", "go-pool", "fixed-window 10000/366d"))
			}
		}()
	}
	group.Wait()
	conn := pool.Get()
	defer conn.Close()
	got := row(conn.Do("WEIR.PEEK", "go-pool", "fixed-window 10000/366d"))
	check(got[2] == 9000, "a pool took %d, not 1000", 10000-got[2])
}

func main() {
	address := "127.0.0.1:" + os.Args[1]
	options := []redis.DialOption{redis.DialDatabase(0), redis.DialClientName("tests")}
	if os.Args[2] != "" {
		options = append(options, redis.DialPassword(os.Args[2]))
		_, err := redis.Dial("tcp", address, redis.DialPassword("wrong"))
		refused(nil, err, "WRONGPASS")
	}
	dial := func() (redis.Conn, error) { return redis.Dial("tcp", address, options...) }
	conn, err := dial()
	if err != nil {
		fmt.Printf("FAIL dial: %v\n0 passed, 1 failed\n", err)
		os.Exit(1)
	}
	one(conn)
	pipeline(conn)
	conn.Close()
	pool(dial)
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
