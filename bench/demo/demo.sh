#!/bin/sh
# The demo: docutils turns its longest documents into HTML, on CPython, and on PyPy if there is one.
# Writes the Firefox profiles and the HTML pages into build/demo, and ends with the answers and where the pages are.
set -eu

cd "$(dirname "$0")/../.."
demo=build/demo
packages=$demo/site-packages
mkdir -p "$demo"

if [ ! -e "$packages/complete" ]; then
    rm -rf "$packages"
    echo "nthbyte: installing docutils, which the demo profiles" >&2
    # Both are pure Python, so both interpreters use the same copy. The documents are part of pyperformance.
    grep -E '^(docutils|pyperformance)==' bench/requirements.txt >"$demo/requirements.txt"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
        --target "$packages" -r "$demo/requirements.txt"
    touch "$packages/complete"
fi

recorded=""
for place in build/quick/cpython build/quick/pypy; do
    nthbyte=$place/bin/nthbyte
    [ -x "$nthbyte" ] || continue
    # Otherwise the first profile would contain the compilation of the modules.
    "$place/bin/python" -m compileall -q "$packages"
    name=docutils-$("$place/bin/python" -c 'import sys; print(sys.implementation.name)')
    echo
    echo "\$ nthbyte run -f -o $demo/$name.nthb bench/programs/docutils_html.py"
    PYTHONPATH=$packages "$nthbyte" run -f -o "$demo/$name.nthb" bench/programs/docutils_html.py
    build/quick/cpython/bin/nthbyte export "$demo/$name.nthb" --to firefox -f -o "$demo/$name.json.gz" 2>/dev/null
    build/quick/cpython/bin/nthbyte flamegraph "$demo/$name.nthb" -f -o "$demo/$name.html" 2>/dev/null
    recorded="$recorded $demo/$name"
done

for name in $recorded; do
    echo
    echo "\$ nthbyte explain $name.nthb"
    build/quick/cpython/bin/nthbyte explain "$name.nthb"
done

echo
echo "Look further:"
for name in $recorded; do
    echo "  build/quick/cpython/bin/nthbyte summary $name.nthb"
    echo "  $name.html (any browser) · $name.json.gz (profiler.firefox.com, or: build/quick/cpython/bin/nthbyte view $name.nthb)"
done
