/*
A limit that a fleet shares, from Go without weir's library.

	go run limiter.go             on a server with the module
	go run limiter.go weir.lua    on any server, by the script that `weir lua` prints

REDIS_URL says where the server is. Needs redigo.
*/
package main

import (
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

const limit = "token-bucket 3/h"
const numbers = "0 0 -1 0 1 1 0 3 3600000000 3 0 0 0" // weir lua --args "token-bucket 3/h"

type decision struct {
	Allowed, Limit, Remaining, RetryAfterUs, ResetAfterUs, DelayUs int64
	Receipt                                                        string
}

type limiter struct {
	pool   *redis.Pool
	script *redis.Script
}

// take asks the server once; redigo never repeats a command, which may have been charged. An error
// that is no redis.Error says that no server answered: then allow or deny, as you prefer.
func (l limiter) take(key string) (d decision, err error) {
	conn := l.pool.Get()
	defer conn.Close()
	var reply []interface{}
	if l.script == nil {
		reply, err = redis.Values(conn.Do("WEIR.TAKE", key, limit))
	} else { // EVALSHA, and the text only where the server does not know it
		words := redis.Args{key}.AddFlat(strings.Fields(numbers))
		reply, err = redis.Values(l.script.Do(conn, words...))
	}
	if err == nil {
		_, err = redis.Scan(reply, &d.Allowed, &d.Limit, &d.Remaining, &d.RetryAfterUs,
			&d.ResetAfterUs, &d.DelayUs, &d.Receipt)
	}
	return d, err
}

func main() {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		url = "redis://127.0.0.1:6379"
	}
	deadline := 50 * time.Millisecond
	if text := os.Getenv("WEIR_DEADLINE"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			log.Fatal(err)
		}
		deadline = time.Duration(seconds * float64(time.Second))
	}
	l := limiter{pool: &redis.Pool{MaxIdle: 8, Dial: func() (redis.Conn, error) {
		return redis.DialURL(url, redis.DialConnectTimeout(time.Second),
			redis.DialReadTimeout(deadline), redis.DialWriteTimeout(deadline))
	}}}
	if len(os.Args) > 1 {
		text, err := os.ReadFile(os.Args[1])
		if err != nil {
			log.Fatal(err)
		}
		l.script = redis.NewScript(1, string(text))
	}
	for number := 1; number <= 4; number++ {
		d, err := l.take("example:go")
		if _, refused := err.(redis.Error); refused {
			log.Fatal(err)
		} else if err != nil {
			fmt.Printf("request %d: allowed, no server answers\n", number)
		} else if d.Allowed == 1 {
			fmt.Printf("request %d: allowed, %d left\n", number, d.Remaining)
		} else {
			fmt.Printf("request %d: denied, retry in %d min\n", number, (d.RetryAfterUs+59999999)/60000000)
		}
	}
}
