#!/bin/sh
# What `meson install` puts somewhere is enough for a CMake project: find_package(weir), weir::weir, weir::static.
. "$(dirname "$0")/lib.sh"

stage=$scratch/stage
check "meson install into an empty folder" meson install -C "$build" --destdir "$stage" --no-rebuild --quiet
config=$(find "$stage" -name weirConfig.cmake)
if [ -z "$config" ]; then
    bad "weirConfig.cmake is installed"
    finish
fi
good "weirConfig.cmake is installed"
none "no path of the checkout in it" "$(grep -nF "$root" "$(dirname "$config")"/*)"
libdir=$(cd "$(dirname "$config")/../.." && pwd)
version=$(tools/version.sh)

mkdir "$scratch/project"
cp examples/embed.c "$scratch/project"
project() { # project VERSION: a project that wants that version
    cat >"$scratch/project/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.13)
project(embed C)
find_package(weir $1 REQUIRED)
add_executable(shared embed.c)
target_link_libraries(shared PRIVATE weir::weir)
add_executable(static embed.c)
target_link_libraries(static PRIVATE weir::static)
CMAKE
    rm -rf "$scratch/out"
    cmake -S "$scratch/project" -B "$scratch/out" "-Dweir_DIR=$(dirname "$config")"
}
refused() {
    ! project "$1"
}
runs() { # runs PROGRAM: five lines, of which the first is known
    "$1" >"$scratch/said" && [ "$(wc -l <"$scratch/said")" = 5 ] &&
        [ "$(head -n 1 "$scratch/said")" = "request 1: allowed, 2 left" ]
}
uses() { # uses PROGRAM COUNT: how many libweir.so.0 it needs
    [ "$(readelf -d "$1" | grep -c 'NEEDED.*libweir\.so\.0')" = "$2" ]
}

check "a project that wants any version" project ""
check "a project that wants ${version%.*}" project "${version%.*}"
check "a project that wants exactly $version" project "$version EXACT"
check "its programs build" cmake --build "$scratch/out"
check "weir::weir is the shared library" uses "$scratch/out/shared" 1
check "it runs, found where it was installed" runs "$scratch/out/shared"
check "weir::static is the archive" uses "$scratch/out/static" 0
check "it runs" runs "$scratch/out/static"
check "a later version is refused" refused "$((${version%%.*} + 1)).0"
check "an earlier one that is not compatible is refused" refused "99.0"
check "libweir.so.0 is beside it" [ -e "$libdir/libweir.so.0" ]
finish
