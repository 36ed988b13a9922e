#!/bin/sh
# Installs the packages of requirements.txt for each version of Python, into a folder of its own: packages.sh PYTHON FOLDER.
# All have wheels for CPython. For PyPy, those with C code are built without it; pydantic, whose core is Rust, and uvloop are left out; greenlets are part of PyPy.
set -e
python=$1 folder=$2
here=$(dirname "$0")
rm -rf "$folder"

install() {
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$@"
}

for version in 3.11 3.12 3.13 3.14 3.15; do
    install "$folder/cpython$version" --python-version $version --only-binary :all: -r "$here/requirements.txt"
done

mkdir -p "$folder/lists"
grep -v -e ^greenlet -e ^pydantic -e ^uvloop "$here/requirements.txt" >"$folder/lists/pypy3.11.txt"
export AIOHTTP_NO_EXTENSIONS=1 FROZENLIST_NO_EXTENSIONS=1 MULTIDICT_NO_EXTENSIONS=1 PROPCACHE_NO_EXTENSIONS=1 YARL_NO_EXTENSIONS=1
install "$folder/pypy3.11" --no-binary aiohttp,frozenlist,markupsafe,multidict,propcache,yarl -r "$folder/lists/pypy3.11.txt"
