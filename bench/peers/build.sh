#!/bin/sh
# Builds the benchmark's peers into build/peers/ and prints, a line each, the commands that start them:
# Guava's RateLimiter first, then Go's x/time/rate. All else goes to stderr.
# Debian packages: default-jdk-headless libguava-java golang-go golang-golang-x-time-dev; installed here when missing
# and root. GUAVA_JAR names another guava.jar, PEERS_GOPATH another GOPATH that holds golang.org/x/time.
set -eu
cd "$(dirname "$0")/../.."
root=$(pwd)

jar=${GUAVA_JAR:-/usr/share/java/guava.jar}
gopath=${PEERS_GOPATH:-/usr/share/gocode}
need=
command -v javac >/dev/null 2>&1 && command -v java >/dev/null 2>&1 || need="$need default-jdk-headless"
[ -e "$jar" ] || need="$need libguava-java"
command -v go >/dev/null 2>&1 || need="$need golang-go"
[ -e "$gopath/src/golang.org/x/time/rate/rate.go" ] || need="$need golang-golang-x-time-dev"
if [ -n "$need" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        # shellcheck disable=SC2086
        apt-get install -y --no-install-recommends $need >&2 || { apt-get update >&2 && apt-get install -y --no-install-recommends $need >&2; }
    else
        echo "peers: missing:$need" >&2
        echo "peers: install with: sudo apt-get install$need" >&2
        exit 3
    fi
fi

out=build/peers
mkdir -p "$out/classes"
javac -nowarn -proc:none -d "$out/classes" -cp "$jar" bench/peers/GuavaPeer.java >&2
cat >"$out/guava" <<END
#!/bin/sh
exec java -Xms1g -Xmx4g -XX:+UseParallelGC -cp "\$(dirname "\$0")/classes:$jar" GuavaPeer
END
chmod +x "$out/guava"
GO111MODULE=off GOFLAGS='' GOPATH="$gopath" GOCACHE="$root/$out/gocache" go build -o "$out/gorate" bench/peers/gorate.go >&2

echo "$root/$out/guava"
echo "$root/$out/gorate"
