// A web application behind the package limits.
//
//	weir serve --policies examples/server/policies.yaml
//	cd examples/server/go && go run ./demo        and then: curl -i localhost:8000
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"weir.example/limits"
)

func setting(name, preset string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return preset
}

func main() {
	deadline, err := time.ParseDuration(setting("WEIR_DEADLINE", "0.05") + "s")
	if err != nil {
		log.Fatal(err)
	}
	limiter := limits.New(setting("WEIR_URL", "http://localhost:7311"), deadline)
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	address := "localhost:" + setting("PORT", "8000")
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("http://" + address)
	log.Fatal(http.Serve(listener, limiter.Limit(hello)))
}
