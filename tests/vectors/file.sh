#!/bin/sh
# The vectors on a file, opened again for each of them: file.sh BUILD FILE…
folder=$(mktemp -d)
build=$1
shift
trap 'rm -rf "$folder"' EXIT
"$build/tests/vectors" --store "file:$folder/zone?size=64m&large=50%" "$@"
