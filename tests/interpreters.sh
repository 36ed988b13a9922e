#!/bin/sh
# Fetches interpreters that this system does not have, each in a small Debian of its own:
#   sid     CPython 3.13, 3.14 and 3.15, and the newest PyPy
#   trixie  PyPy 7.3.19
#   arm64   those of sid for ARM64, which tests/emulated runs with qemu-aarch64 (Debian: qemu-user)
# Needs root and debootstrap. TREES selects some of them. Existing ones are kept.
set -eu

cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "nthbyte: make interpreters needs root, for debootstrap and chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "nthbyte: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }

for tree in ${TREES:-sid trixie arm64}; do
    folder=build/interpreters/$tree
    suite=$tree
    foreign=
    case $tree in
        sid)
            packages=pypy3,pypy3-lib-testsuite
            for version in 3.13 3.14 3.15; do
                packages=$packages,python$version,libpython$version-testsuite
            done ;;
        arm64)
            # Beside the others: no chroot can enter it.
            folder=build/emulated/arm64
            suite=sid
            foreign="--foreign --arch=arm64"
            packages=python3.13,python3.14,python3.15,pypy3 ;;
        *) packages=pypy3,pypy3-lib-testsuite ;;
    esac
    [ -e "$folder/complete" ] && continue
    rm -rf "$folder"
    mkdir -p "$folder"
    echo "fetching the interpreters of Debian $suite${foreign:+ for ARM64}"
    # shellcheck disable=SC2086 # options
    debootstrap $foreign --variant=minbase --include="$packages" "$suite" "$folder" >"$folder.log" 2>&1 || {
        tail -5 "$folder.log" >&2
        exit 1
    }
    # What has another processor's code is unpacked, and not configured: its programs are only run by the emulator.
    if [ -n "$foreign" ]; then
        for package in "$folder"/var/cache/apt/archives/*.deb; do dpkg -x "$package" "$folder"; done
    fi
    rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/*
    touch "$folder/complete"
done
