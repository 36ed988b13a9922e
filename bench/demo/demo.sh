#!/bin/sh
# The demo: docutils turns its longest documents into HTML, on CPython, and on PyPy if there is one.
# Prints the answers and the summary, and writes the Firefox profile and the HTML page into build/demo.
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

for place in .venv .venv-pypy; do
    nthbyte=$place/bin/nthbyte
    [ -x "$nthbyte" ] || continue
    # Otherwise the first profile would contain the compilation of the modules.
    "$place/bin/python" -m compileall -q "$packages"
    name=docutils-$("$place/bin/python" -c 'import sys; print(sys.implementation.name)')
    echo
    echo "\$ nthbyte run -f -o $demo/$name.nthb bench/programs/docutils_html.py"
    PYTHONPATH=$packages "$nthbyte" run -f -o "$demo/$name.nthb" bench/programs/docutils_html.py
    echo
    echo "\$ nthbyte summary $demo/$name.nthb --top 12"
    "$nthbyte" summary "$demo/$name.nthb" --top 12
    echo
    echo "\$ nthbyte explain $demo/$name.nthb"
    "$nthbyte" explain "$demo/$name.nthb"
    "$nthbyte" export "$demo/$name.nthb" --to firefox -o "$demo/$name.json.gz" 2>/dev/null
    "$nthbyte" flamegraph "$demo/$name.nthb" -o "$demo/$name.html" 2>/dev/null
done

echo
echo "Look further:"
for page in "$demo"/*.html; do
    echo "  $page (any browser) · ${page%.html}.json.gz (profiler.firefox.com, or: .venv/bin/nthbyte view ${page%.html}.nthb)"
done
