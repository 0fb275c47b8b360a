#!/bin/sh
# Prints the version: include/weir.h is the one place that has it.
exec sed -n '
    s/^#define WEIR_VERSION_MAJOR \([0-9]*\)$/\1/; t keep
    s/^#define WEIR_VERSION_MINOR \([0-9]*\)$/.\1/; t keep
    s/^#define WEIR_VERSION_PATCH \([0-9]*\)$/.\1/; t print
    b
    :keep
    H; b
    :print
    H; g; s/\n//g; p' "$(dirname "$0")/../include/weir.h"
