#!/bin/sh
# Installs the named Debian packages that are missing; without names, all that the demo, the checks and the benchmarks use.
# If that is not allowed, prints the rest and continues: everything else still works.
set -eu

ALL="pypy3 pypy3-venv pypy3-lib-testsuite libunwind-dev chromium libjemalloc2 libmimalloc2.0 libtcmalloc-minimal4 libgc-dev valgrind patch"
[ "${CI:-}" = true ] && [ "$(id -u)" = 0 ] && ALL="$ALL debootstrap"

missing=""
for package in ${*:-$ALL}; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "nthbyte: not installed, so what needs it is left out:$missing" >&2
    exit 0
fi
echo "nthbyte: installing Debian packages:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of words
apt-get install -qq -y --no-install-recommends $missing >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -qq -y --no-install-recommends $missing >/dev/null; } ||
    echo "nthbyte: could not be installed, so what needs it is left out:$missing" >&2
