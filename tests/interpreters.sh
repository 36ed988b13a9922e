#!/bin/sh
# Fetches interpreters that this system does not have, each in a small Debian of its own, or builds them:
#   sid     CPython 3.13, 3.14 and 3.15, and the newest PyPy
#   trixie  PyPy 7.3.19
#   arm64   those of sid for ARM64, which tests/emulated runs with qemu-aarch64 (Debian: qemu-user)
#   freethreaded  CPython 3.13 without the GIL, which Debian does not have: built from its source package (10 minutes of CPU,
#                 with the C compiler and the headers that are here), if TREES names it
#   arm64-kernel  Debian's Linux for ARM64, with which tests/emulated runs a whole machine (Debian: qemu-system-arm), if TREES names it
#   clean-bookworm, clean-trixie, clean-arm64-bookworm, clean-arm64-trixie  if TREES names them: Debian 12 and 13, where `make try-wheels`
#                 installs wheels
# Needs root and debootstrap. TREES selects some of them. Existing ones are kept.
set -eu

cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "nthbyte: make interpreters needs root, for debootstrap and chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "nthbyte: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }

fetch_kernel() {
    folder=build/emulated/kernel
    [ -e "$folder/vmlinuz" ] && return
    rm -rf "$folder"
    mkdir -p "$folder/lists/partial" "$folder/archives/partial"
    (
        cd "$folder"
        echo "deb http://deb.debian.org/debian trixie main" >sources.list
        : >status
        # Lists of its own: the system's stay as they are, and need no other processor.
        set -- -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::Etc::sourcelist=$PWD/sources.list" -o Dir::Etc::sourceparts=- \
            -o "Dir::State::lists=$PWD/lists" -o "Dir::State::status=$PWD/status" -o "Dir::Cache=$PWD" -o Acquire::Check-Valid-Until=false
        apt-get "$@" update
        package=$(apt-cache "$@" depends linux-image-arm64 | sed -n 's/ *Depends: \(linux-image-[^ ]*\).*/\1/p' | head -1)
        apt-get "$@" download "$package"
        dpkg --fsys-tarfile ./linux-image-*.deb | tar x --wildcards './boot/vmlinuz-*'
        mv boot/vmlinuz-* vmlinuz
        rm -rf boot lists archives ./*.deb ./*.bin
    ) >"$folder.log" 2>&1 || {
        tail -5 "$folder.log" >&2
        exit 1
    }
}

build_freethreaded() {
    folder=build/interpreters/freethreaded
    [ -e "$folder/complete" ] && return
    rm -rf "$folder"
    mkdir -p "$folder/source/lists/partial" "$folder/source/archives/partial"
    folder=$(cd "$folder" && pwd -P)
    echo "building CPython 3.13 without the GIL"
    (
        cd "$folder/source"
        echo "deb-src http://deb.debian.org/debian trixie main" >sources.list
        # Lists of its own: the system's stay as they are.
        set -- -o "Dir::Etc::sourcelist=$PWD/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$PWD/lists" \
            -o "Dir::Cache=$PWD" -o Acquire::Check-Valid-Until=false
        apt-get "$@" update
        apt-get "$@" source --download-only python3.13
        tar xf python3.13_*.orig.tar.xz
        cd Python-3.13.*
        ./configure -q --disable-gil --without-ensurepip --prefix="$folder"
        nice make -s -j"${JOBS:-1}"
        # Of its modules, those that most programs import are compiled.
        make -s altinstall COMPILEALL_OPTS=-l
    ) >"$folder.log" 2>&1 || {
        tail -5 "$folder.log" >&2
        exit 1
    }
    rm -rf "$folder/source"
    touch "$folder/complete"
}

for tree in ${TREES:-sid trixie arm64}; do
    [ "$tree" = arm64-kernel ] && { fetch_kernel; continue; }
    [ "$tree" = freethreaded ] && { build_freethreaded; continue; }
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
        clean-*)
            # Beside the others, for the tests do not run there.
            folder=build/trial/${tree#clean-}
            suite=${tree##*-}
            [ "$tree" = "clean-$suite" ] || foreign="--foreign --arch=arm64"
            packages=python3,python3-pip,pypy3 ;;
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
