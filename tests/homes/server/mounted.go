// net/http with the middleware of examples/server mounted at /api; recipes.py puts it beside its package and starts it.
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"weir.example/limits"
)

func main() {
	deadline, err := time.ParseDuration(os.Getenv("WEIR_DEADLINE") + "s")
	if err != nil {
		log.Fatal(err)
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	mux := http.NewServeMux()
	mux.Handle("/api/", http.StripPrefix("/api", limits.New(os.Getenv("WEIR_URL"), deadline).Limit(hello)))
	log.Fatal(http.ListenAndServe("localhost:"+os.Getenv("PORT"), mux))
}
