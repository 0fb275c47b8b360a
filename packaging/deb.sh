#!/bin/sh
# Debian packages of this tree, into build/deb. As any user, without network, with or without git.
#
#     packaging/deb.sh [FOLDER]
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/build/deb}
version=$("$root/tools/version.sh")

mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d "$out/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

# What belongs to the source: all but what was built. Without git, a tree as it was unpacked.
if [ -e "$root/.git" ] && git -C "$root" ls-files >/dev/null 2>&1; then
    files() { git -C "$root" ls-files -z --cached --others --exclude-standard; }
else
    files() { (cd "$root" && find . \( -path './build*' -o -path ./.git \) -prune -o -type f -print0 -o -type l -print0); }
fi
mkdir "$work/weir"
files | (cd "$root" && xargs -0 sh -c 'for file; do [ -e "$file" ] && printf "%s\0" "$file"; done' sh |
    tar --null --no-recursion -cf - -T -) | tar -C "$work/weir" -xf -
cd "$work/weir"
cp -R packaging/debian debian
sed -i "1s/@VERSION@/$version/" debian/changelog
for unit in service socket; do
    cp "packaging/systemd/weir.$unit" debian/
done
cp packaging/weir.default debian/

DEB_BUILD_OPTIONS="parallel=$(nproc) nocheck ${DEB_BUILD_OPTIONS:-}" \
    dpkg-buildpackage -b -d -us -uc >"$work/log" 2>&1 || {
    tail -n 40 "$work/log" >&2
    exit 1
}
rm -f "$out"/*.deb "$out"/*.changes "$out"/*.buildinfo
mv "$work"/*.deb "$work"/*.changes "$work"/*.buildinfo "$out"
ls "$out"/*.deb
