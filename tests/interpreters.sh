#!/bin/sh
# Fetches interpreters that this system does not have, each in a small Debian of its own:
#   sid     CPython 3.13, 3.14 and 3.15, and the newest PyPy
#   trixie  PyPy 7.3.19
# Needs root and debootstrap. TREES selects some of them. Existing ones are kept.
set -eu

cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "nthbyte: make interpreters needs root, for debootstrap and chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "nthbyte: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }

for tree in ${TREES:-sid trixie}; do
    folder=build/interpreters/$tree
    [ -e "$folder/complete" ] && continue
    case $tree in
        sid)
            packages=pypy3,pypy3-lib-testsuite
            for version in 3.13 3.14 3.15; do
                packages=$packages,python$version,libpython$version-testsuite
            done ;;
        *) packages=pypy3,pypy3-lib-testsuite ;;
    esac
    rm -rf "$folder"
    mkdir -p "$folder"
    echo "fetching the interpreters of Debian $tree"
    debootstrap --variant=minbase --include="$packages" "$tree" "$folder" >"build/interpreters/$tree.log" 2>&1 || {
        tail -5 "build/interpreters/$tree.log" >&2
        exit 1
    }
    rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/*
    touch "$folder/complete"
done
