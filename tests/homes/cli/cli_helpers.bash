# What the cli_*.sh tests share. Sourced, not run: each check prints `ok …` or `FAIL …`, `finish` ends
# with the count. $WEIR is the command, $tmp a directory that goes away, state is kept in it.
# shellcheck disable=SC2015,SC2034  # out, err and code are for the tests

set -u
: "${WEIR:=build/weir}"
WEIR=$(realpath "$WEIR")
passed=0 failed=0
out='' err='' code=0

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export XDG_STATE_HOME=$tmp/state HOME=$tmp/home
unset NO_COLOR

# run ARGUMENTS: weir with its output in $out and $err, its exit code in $code; stdin is the caller's
run() {
    out=$("$WEIR" "$@" 2>"$tmp/stderr")
    code=$?
    err=$(<"$tmp/stderr")
}

report() { # NAME GOOD [WHY]
    if [[ $2 == 1 ]]; then
        passed=$((passed + 1))
        echo "ok   $1"
    else
        failed=$((failed + 1))
        echo "FAIL $1${3:+: $3}"
    fi
}

is() { # NAME EXPECTED ACTUAL
    [[ "$2" == "$3" ]] && report "$1" 1 || report "$1" 0 "expected <$2>, got <$3>"
}

has() { # NAME NEEDLE TEXT
    [[ "$3" == *"$2"* ]] && report "$1" 1 || report "$1" 0 "<$2> is not in <$3>"
}

lacks() { # NAME NEEDLE TEXT
    [[ "$3" != *"$2"* ]] && report "$1" 1 || report "$1" 0 "<$2> is in <$3>"
}

# exits NAME CODE ARGUMENTS: runs weir, checks only its exit code
exits() {
    local name=$1 expected=$2
    shift 2
    run "$@" </dev/null
    [[ $code == "$expected" ]] && report "$name" 1 ||
        report "$name" 0 "expected exit $expected, got $code; $err"
}

# refuses NAME CODE NEEDLE ARGUMENTS: exit code, nothing on stdout, a message that holds NEEDLE
refuses() {
    local name=$1 expected=$2 needle=$3
    shift 3
    run "$@" </dev/null
    local command=$1
    if [[ $code == "$expected" && -z $out && $err == "weir"*": "*"$needle"* ]]; then
        report "$name" 1
    else
        report "$name" 0 "weir $command: exit $code (expected $expected), stdout <$out>, stderr <$err>"
    fi
}

# field NAME…: of the JSON object in $out, as Python prints them
field() {
    python3 -c 'import json, sys
def find(value, path):
    for name in path.split("."):
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value
print(*[find(json.loads(sys.argv[1]), path) for path in sys.argv[2:]])' "$out" "$@"
}

valid_json() { # NAME TEXT
    python3 -m json.tool <<<"$2" >/dev/null 2>&1 && report "$1" 1 || report "$1" 0 "not JSON: <$2>"
}

finish() {
    echo "$passed passed, $failed failed"
    ((failed == 0))
    exit
}
