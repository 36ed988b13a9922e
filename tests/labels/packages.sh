#!/bin/sh
# Installs the packages of requirements.txt for each version of Python, into a folder of its own: packages.sh PYTHON FOLDER.
# Most have wheels for CPython. For PyPy, those with C code are built without it, and only pydantic's core, which is Rust,
# has a wheel.
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

install "$folder/pypy3.11" --python-version 3.11 --implementation pp --abi pypy311_pp73 --only-binary :all: \
    --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 $(grep ^pydantic_core "$here/requirements.txt")
mkdir -p "$folder/lists"
grep -v ^pydantic_core "$here/requirements.txt" >"$folder/lists/pypy3.11.txt"
export AIOHTTP_NO_EXTENSIONS=1 FROZENLIST_NO_EXTENSIONS=1 MULTIDICT_NO_EXTENSIONS=1 PROPCACHE_NO_EXTENSIONS=1 YARL_NO_EXTENSIONS=1
install "$folder/pypy3.11" --no-binary aiohttp,frozenlist,markupsafe,multidict,propcache,yarl -r "$folder/lists/pypy3.11.txt"
