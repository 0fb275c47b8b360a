#!/bin/sh
# Regenerates tests/vectors/guava_*.vec by driving the real Guava RateLimiter, and checks them against the formulas.
# Needs a JDK, Guava (Debian: libguava-java) and python3. GUAVA_JAR names another guava.jar.
set -eu
cd "$(dirname "$0")/../.."

jar=${GUAVA_JAR:-/usr/share/java/guava.jar}
need=
command -v javac >/dev/null 2>&1 && command -v java >/dev/null 2>&1 || need="$need default-jdk-headless"
[ -e "$jar" ] || need="$need libguava-java"
command -v python3 >/dev/null 2>&1 || need="$need python3"
if [ -n "$need" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        # shellcheck disable=SC2086
        apt-get install -y --no-install-recommends $need >&2 || { apt-get update >&2 && apt-get install -y --no-install-recommends $need >&2; }
    else
        echo "guava-traces: missing:$need" >&2
        echo "guava-traces: install with: sudo apt-get install$need   (or set GUAVA_JAR to a guava 31.1 jar)" >&2
        exit 3
    fi
fi

classes=build/guava-traces
mkdir -p "$classes" tests/vectors
javac -nowarn -Xlint:-options -proc:none -d "$classes" -cp "$jar" \
    tests/guava/com/google/common/util/concurrent/ScriptedRateLimiter.java tests/guava/GuavaTraces.java
java -cp "$classes:$jar" GuavaTraces tests/vectors
exec python3 tests/guava/check.py
