# What the scripts of tests/api share: counting, a scratch folder, the build folder. Sourced.
# check WHAT COMMAND …  runs the command silently; its output is shown when it fails.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 2
build=${WEIR_BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0

good() {
    passed=$((passed + 1))
    echo "ok   $1"
}

# bad WHAT [WHY]
bad() {
    failed=$((failed + 1))
    echo "FAIL $1"
    [ -z "${2:-}" ] || printf '%s\n' "$2" | sed 's/^/     /'
}

check() {
    what=$1
    shift
    if output=$("$@" 2>&1); then good "$what"; else bad "$what" "$output"; fi
}

# none WHAT LINES: good if there are no lines, else they are shown.
none() {
    if [ -z "$2" ]; then good "$1"; else bad "$1" "$2"; fi
}

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
    exit
}
