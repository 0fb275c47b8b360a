#!/bin/sh
# A file in src/ includes only its own layer or a lower one, and the core is pure.
. "$(dirname "$0")/lib.sh"

layer_of() {
    case $1 in
    base) echo 0 ;;
    core) echo 1 ;;
    limit) echo 2 ;;
    store) echo 3 ;;
    wire) echo 4 ;;
    remote) echo 5 ;;
    policy) echo 6 ;;
    sim | desk | server | cli) echo 7 ;;
    *) echo none ;;
    esac
}

# What is wrong with the includes of one folder's files, a line each.
wrong_includes() { # wrong_includes FOLDER LAYER
    grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' -r --include='*.[ch]' "src/$1" |
        while IFS= read -r line; do
            included=${line#*\"}
            included=${included%%\"*}
            case $included in
            weir.h) continue ;;
            */*) ;;
            *)
                echo "$line: name it by its folder"
                continue
                ;;
            esac
            theirs=$(layer_of "${included%%/*}")
            if [ "$theirs" = none ] || [ "$theirs" -gt "$2" ]; then
                echo "$line: layer $2 must not use ${included%%/*}"
            fi
        done
}

for folder in src/*/; do
    name=$(basename "$folder")
    layer=$(layer_of "$name")
    if [ "$layer" = none ]; then
        bad "src/$name has a layer" "add it to the list in tests/api/layers.sh"
    else
        none "src/$name (layer $layer) uses only its own and lower layers" "$(wrong_includes "$name" "$layer")"
    fi
done
none "requests inside the library say everything: weir__take_all and its like, not weir_take_all" \
    "$(grep -nE '\bweir_(take_all|peek_all|take_many)\(' -r --include='*.[ch]' $(ls -d src modules 2>/dev/null) | grep -vE '^src/(store/requests|cli/commands/bench)\.c:')"
none "files lie in a layer's folder" "$(ls src/*.c src/*.h 2>/dev/null)"

impure='<(stdio|stdlib|time|unistd|pthread|fcntl|errno|sys/[a-z]+)\.h>'
none "core includes no header of clocks, allocation, threads or I/O" "$(grep -nE "#include $impure" src/core/*)"
none "core uses of base only base.h, which is as pure" \
    "$(grep -nE '#include "base/' src/core/* | grep -v '"base/base.h"'; grep -nE "#include $impure" src/base/base.h)"

# The compiled core may call only itself, mathematics and memory copies.
symbols() { # symbols NM-OPTION: "object symbol-type name" of the core's objects
    nm "$1" "$build/libweir.a" 2>/dev/null | awk '
        /\.o:$/ { object = $1; core = object ~ /core_/ }
        core && NF >= 2 && !/\.o:$/ { print object, $(NF - 1), $NF }'
}
if symbols -u | grep -q .; then
    none "core's objects call nothing but core, mathematics and mem*" "$(symbols -u | awk '
        $3 !~ /^weir__/ && $3 !~ /^(ceil|floor|fmin|fmax|mem(cpy|cmp|set|move)|_GLOBAL_OFFSET_TABLE_|__divti3|__stack_chk_fail|__assert_fail)$/ &&
        $3 !~ /^__([atu]|ub)san/ && $3 !~ /^__sanitizer/ { print }')"
else
    bad "core's objects are in libweir.a"
fi
if ! symbols -u | grep -q 'san_'; then
    none "core's objects hold no variables" \
        "$(symbols --defined-only | awk '$2 ~ /^[bBcCdDsS]$/ && $3 !~ /^weir__algorithm(s$|_)/')"
fi
finish
