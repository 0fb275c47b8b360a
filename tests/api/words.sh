#!/bin/sh
# Tracked files speak of the software only: no paths of somebody's machine, no private hosts, no notes to
# self. This file is exempt, since it must name what it looks for.
. "$(dirname "$0")/lib.sh"

tracked() { git ls-files -z -- "$@" ':!tests/api/words.sh' ':!fuzz/corpus' ':!*/corpus/*'; }
# found PATTERN [PATHS …]: matching lines of tracked text files, whole: a filter must see all of a line
found() {
    pattern=$1
    shift
    tracked "$@" | xargs -0 -r grep -InE -e "$pattern" -- 2>/dev/null
}

if ! git rev-parse --git-dir >/dev/null 2>&1; then
    echo "not a git checkout: nothing is tracked"
    finish
fi
quoted=$(printf '%s' "$root" | sed 's/[][\.*^$+?(){}|]/\\&/g')
none "no path of this checkout" "$([ "$root" = / ] || found "$quoted(/|[^A-Za-z0-9_.-]|\$)")"
none "no folders of somebody's machine" "$(found '(^|[^A-Za-z0-9_.])(/wor[k]/|/home/[a-z]|/Users/[A-Z]|/root/)')"
# The port of `weir serve` on loopback is ours; other addresses with a port and a path are somebody's mirror.
none "no mirrors or private hosts" \
    "$(found '(artifactory|nexus|mirror|registry|proxy)[a-z0-9.-]*\.(internal|local|corp|lan)|https?://(10|127|192\.168)\.[0-9.]+:[0-9]+/|pip[._-]index|GOPROXY=|--index-url|npm_config_registry' |
        grep -avE 'http://127\.0\.0\.1:7311/')"
none "no words on how it was written" \
    "$(found '[Ss]ub-?agent|[Cc]laude|[Aa]nthropic|[Cc]hat-?GPT|[Cc]opilot|[Aa]s an AI|[Gg]enerated (with|by) (an? )?(AI|LLM)|[Cc]o-[Aa]uthored-[Bb]y')"
none "no notes to self in src, include and modules" "$(found '(^|[^A-Za-z])(TODO|FIXME|XXX|HACK)([^A-Za-z]|$)' src include modules)"
none "no code commented out by #if 0" "$(found '^[[:space:]]*#[[:space:]]*if[[:space:]]+0' src include modules)"
none "no line of C over 100 characters, comments included" \
    "$(tracked '*.c' '*.h' | xargs -0 -r env LC_ALL=C.UTF-8 grep -InE '^.{101,}$' -- | cut -c 1-160)"
none "no conflict markers" "$(found '^(<<<<<<<|>>>>>>>) ')"
none "no trailing blanks in src, include, examples and docs" "$(found '[[:blank:]]+$' 'src/*.[ch]' include examples docs/*.md README.md)"
finish
