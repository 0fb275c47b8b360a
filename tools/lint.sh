#!/bin/sh
# Format and static analysis, on all cores.
#
#     tools/lint.sh              every file
#     tools/lint.sh --changed    files that differ from the parent branch or are not committed
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C

everything() { git ls-files '*.c' '*.h'; }
changed() {
    base=HEAD
    for name in '@{upstream}' origin/HEAD origin/main main; do
        if git rev-parse -q --verify "$name^{commit}" >/dev/null 2>&1; then
            base=$(git merge-base HEAD "$name") && break
        fi
    done
    git diff --name-only --diff-filter=d "$base" -- '*.c' '*.h'
    git ls-files --others --exclude-standard -- '*.c' '*.h'
}

case ${1:-} in
'') files=$(everything) ;;
--changed) files=$(changed) ;;
*)
    echo "lint: unknown option $1; there is --changed" >&2
    exit 2
    ;;
esac
files=$(echo "$files" | grep -v '^tests/guava' || true)
analysed=$(echo "$files" | grep -E '^(src|modules)/.*\.c$' || true)
if [ -z "$files" ]; then
    echo "lint: no C file has changed"
    exit 0
fi
tools/deps.sh lint
echo "$files" | xargs clang-format --dry-run --Werror
if [ -n "$analysed" ]; then
    tools/configure.sh build
    ninja -C build weir weir_redis.so $(grep -q nginx build/found && echo ngx_http_weir_module.so) >/dev/null # headers that are made
    # Flags that only gcc knows would end clang-tidy before it reads a file.
    mkdir -p build/lint
    sed -E 's/ -mmemset-strategy=[^ "]*//g' build/compile_commands.json >build/lint/compile_commands.json
    # Two files at a time, so that a long one does not delay the end.
    echo "$analysed" | xargs -P "$(nproc)" -n 2 clang-tidy -quiet -p build/lint 2>&1 |
        { grep -v -E '^[0-9]+ warnings? generated\.$|^Suppressed |^Use -header-filter' || true; } >build/lint.log
    cat build/lint.log
    if grep -q -E '(^|: )(warning|error): ' build/lint.log; then
        exit 1
    fi
fi
echo "lint: $(echo "$files" | wc -l) files, nothing to say"
