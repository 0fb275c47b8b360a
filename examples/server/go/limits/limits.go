// Package limits lets `weir serve` decide requests: a middleware for net/http.
//
//	limiter := limits.New("http://localhost:7311", 50*time.Millisecond)
//	http.ListenAndServe("localhost:8000", limiter.Limit(mux))
package limits

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

var passedOn = []string{"Retry-After", "RateLimit", "RateLimit-Policy"}

const longest = 16384 // bytes of a path; weir would refuse a longer one, or hang up on it, which looks like no answer

// Limiter asks one server. Its client keeps connections.
type Limiter struct {
	URL    string
	Client http.Client
}

// New makes a Limiter that waits for an answer no longer than deadline.
func New(url string, deadline time.Duration) *Limiter {
	return &Limiter{URL: url, Client: http.Client{
		Timeout:       deadline,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// pathOf is the path as the client sent it: http.StripPrefix takes off of r.URL what a handler is mounted at.
func pathOf(r *http.Request) string {
	target, _, _ := strings.Cut(r.RequestURI, "?")
	if whole, err := url.Parse(target); err == nil && whole.Host != "" && !strings.HasPrefix(target, "/") {
		target = whole.EscapedPath() // some clients send whole addresses
	}
	if target == "" {
		target = "/"
	}
	return target
}

type decision struct {
	status int
	header http.Header
	body   []byte
}

// ask says what the server decides of a request. An error: no answer, or a failure (5xx). Whatever else is not a
// 200 is a refusal: 429 of a limit, 403 of a deny list, 400 of a request that weir cannot read.
func (l *Limiter) ask(r *http.Request) (*decision, error) {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	path := pathOf(r)
	if len(path) > longest {
		return &decision{status: 414}, nil
	}
	question, err := json.Marshal(map[string]any{"attributes": map[string]string{
		"ip": host, "method": r.Method, "path": path}})
	if err != nil {
		return nil, err
	}
	answer, err := l.Client.Post(l.URL+"/v1/take", "application/json", bytes.NewReader(question))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	status := answer.StatusCode
	if err != nil || status >= 500 {
		return nil, fmt.Errorf("%s: %s %v", answer.Status, body, err)
	}
	if status != 200 && status != 403 && status != 429 { // no decision, but a mistake to mend
		log.Printf("weir answers %s: %s", answer.Status, body)
	}
	if status != 200 && status < 400 { // not weir's: refused, and nothing of it is passed on
		status, body = 500, nil
	}
	return &decision{status, answer.Header, body}, nil
}

// Limit lets through what the server allows, and everything while it does not answer or fails.
func (l *Limiter) Limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		decided, err := l.ask(r)
		if err != nil {
			log.Println("weir does not answer:", err)
			next.ServeHTTP(w, r)
			return
		}
		for _, name := range passedOn {
			if value := decided.header.Get(name); value != "" {
				w.Header().Set(name, value)
			}
		}
		if decided.status != 200 {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(decided.status)
			w.Write(decided.body)
			return
		}
		var told struct{ Delay float64 } // of limits that shape: leaky-bucket, smooth, warmup
		if json.Unmarshal(decided.body, &told) == nil && told.Delay > 0 {
			time.Sleep(time.Duration(told.Delay * float64(time.Second)))
		}
		next.ServeHTTP(w, r)
	})
}
