#!/bin/sh
# The vectors on shared memory: shm.sh BUILD FILE…
name=/weir-vectors-$$
build=$1
shift
trap 'rm -f "/dev/shm$name"' EXIT
"$build/tests/vectors" --store "shm:$name?size=64m&large=50%" "$@"
