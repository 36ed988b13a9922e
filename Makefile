# The two main commands are `make demo` and `make test`. Both install everything that they need.

PYTHON ?= python3
PYPY ?= $(shell command -v pypy3)
TARGET := $(or $(CARGO_TARGET_DIR),target)
BIN := .venv/bin
WHEELS := build/wheels

# If there is a pypy3, nthbyte is installed for it too.
VENVS := .venv/installed $(if $(PYPY),.venv-pypy/installed)

# For the demo: a wheel that is built sooner, and is not as fast. Nothing else uses it.
QUICK := build/quick
QUICK_VENVS := $(QUICK)/cpython/installed $(if $(PYPY),$(QUICK)/pypy/installed)

SOURCES := $(shell find crates python -type f -not -name '*.pyc' -not -name '*.so' -not -path '*/bin/*') \
           Cargo.toml Cargo.lock pyproject.toml hatch_build.py

.PHONY: all demo demo-installed wheels try-wheels release test test-all check-rustfmt check-clippy check-rustdoc test-rust test-nursery check-aarch64 check-threads check-ruff check-mypy check-structure \
        test-structure test-cpython test-integrations test-emulated test-macos test-formats test-collector test-native test-rpython test-processes test-pypy test-soak test-compatibility test-build \
        test-page test-bench test-experiments soak compatibility compatibility-programs system interpreters lock bench count leaks leaks-peers docs docs-outputs \
        check-docs test-guide test-tutorials clean

all: .venv/ready $(VENVS)

## The set-up

# What builds the wheel.
.venv/made: requirements-dev.txt
	@echo "nthbyte: installing hatchling, which makes the wheel, into .venv" >&2
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements-dev.txt hatchling
	touch $@

# And what the checks need.
.venv/ready: .venv/made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

.venv-pypy/ready:
	$(PYPY) -m venv .venv-pypy
	touch $@

# One wheel serves every interpreter. Somebody who waits for it sees how far cargo is.
$(WHEELS)/built: $(SOURCES) .venv/made
	@echo "nthbyte: building the wheel, which takes some minutes the first time" >&2
	@rm -rf $(WHEELS) && mkdir -p $(WHEELS)
	@$(BIN)/python -m hatchling build -t wheel -d $(WHEELS)
	@touch $@

.venv/installed: $(WHEELS)/built
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall $(WHEELS)/*.whl
	touch $@

.venv-pypy/installed: $(WHEELS)/built .venv-pypy/ready
	.venv-pypy/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall $(WHEELS)/*.whl
	touch $@

# The unpacked wheel, for the interpreters that the tests find.
build/site/installed: $(WHEELS)/built
	rm -rf build/site
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --target build/site $(WHEELS)/*.whl
	touch $@

# Installs missing Debian packages that the demo, the checks and the benchmarks use, if that is allowed.
system:
	@sh tests/system-packages.sh

# More interpreters for the tests: CPython 3.13 to 3.15 and two more PyPys, from Debian. Needs root.
interpreters:
	sh tests/interpreters.sh

# Pins the packages that the checks, the benchmarks and the documentation site install.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet pip-tools
	for list in requirements-dev bench/requirements bench/peers bench/native site/requirements release/requirements; do \
	  build/lock/bin/pip-compile --quiet --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host \
	    --no-emit-find-links $$list.in -o $$list.txt || exit 1; \
	done

## The demo

# What the demo uses is looked for again after the packages are there: a pypy3 may be new.
demo:
	@sh tests/system-packages.sh pypy3 pypy3-venv
	@$(MAKE) --no-print-directory --silent demo-installed
	@sh bench/demo/demo.sh

demo-installed: $(QUICK_VENVS)

# In the profile `quick` of Cargo.toml, and without two commands that no page of the demo names: the first build is most of its time.
$(QUICK)/built: $(SOURCES) .venv/made
	@echo "nthbyte: building a wheel for this demo, with less optimization: a minute or two on two cores" >&2
	@rm -rf $(QUICK)/wheels && mkdir -p $(QUICK)/wheels
	@NTHBYTE_PROFILE=quick NTHBYTE_FEATURES= $(BIN)/python -m hatchling build -t wheel -d $(QUICK)/wheels
	@touch $@

$(QUICK)/cpython/installed: INTERPRETER = $(PYTHON)
$(QUICK)/pypy/installed: INTERPRETER = $(PYPY)
$(QUICK)/%/installed: $(QUICK)/built
	@echo "nthbyte: installing it for $(INTERPRETER)" >&2
	@rm -rf $(@D)
	@$(INTERPRETER) -m venv --without-pip $(@D)
	@$(BIN)/python -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check --no-deps --no-index $(QUICK)/wheels/*.whl
	@touch $@

## The release

build/release/ready: release/requirements.txt
	$(PYTHON) -m venv build/release/tools
	build/release/tools/bin/python -m pip install --quiet --disable-pip-version-check -r release/requirements.txt
	touch $@

# The source distribution, and from it the wheels that users install, into dist/. They are linked against an old C library.
# TARGETS=x86_64 builds one of them; TARGETS=macos_arm64 the reports alone, for macOS; TWICE=1 builds everything again, and compares.
wheels: build/release/ready
	build/release/tools/bin/python release/wheels.py $(if $(TARGETS),--targets $(TARGETS)) $(if $(TWICE),--twice)

# The version, the changelog, a commit and a tag: `make release VERSION=1.2.3`. Publishes nothing.
release:
	@$(PYTHON) release/prepare.py "$(VERSION)"

# Installs and uses the wheels with each interpreter that is here, in a clean Debian 12 and 13, and by an emulator in Debian 12 to sid for ARM64.
# Builds the wheels if there are none. Not as root, or without debootstrap, it says what it leaves out.
TRIAL_TREES := clean-bookworm clean-trixie $(if $(shell command -v qemu-aarch64),arm64 clean-arm64-bookworm clean-arm64-trixie)

try-wheels: .venv/ready
	@ls dist/*.whl >/dev/null 2>&1 || $(MAKE) --no-print-directory wheels
	@if [ "$$(id -u)" = 0 ] && command -v debootstrap >/dev/null; then TREES="$(TRIAL_TREES)" sh tests/interpreters.sh; fi
	@$(BIN)/python release/trial.py dist

## The checks

# Runs the suites, even if others fail, and prints a table of the results; see tests/suites.py. docs/internals/testing.md says
# what it leaves out.
# SUITES="check-ruff test-pypy" runs only these.
test: system
	@$(PYTHON) tests/suites.py $(SUITES)

# Runs every suite, and each test on every interpreter: an hour and more. Before a change of what agents do, and a release.
test-all: system
	@NTHBYTE_EVERY_INTERPRETER=1 $(PYTHON) tests/suites.py --all

# What the suites share is made before any of them.
test-build: all build/site/installed build/page/driver

check-rustfmt:
	cargo fmt --all --check

check-clippy:
	cargo clippy --workspace --all-features --all-targets --locked -- -D warnings

# Links in the documentation of the crates, which is for those who work on them: private items too.
check-rustdoc:
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --workspace --no-deps --document-private-items --locked

# All features, also where the other suites need a program of the workspace: with one set of them nothing is built twice.
CARGO_TEST := PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED:-1} cargo test --locked --no-fail-fast

test-rust:
	$(CARGO_TEST) --workspace --all-features --exclude nthbyte-nursery

# The crate for builders of virtual machines: no agent has its code, and it changes rarely.
test-nursery:
	$(CARGO_TEST) --package nthbyte-nursery

# Checks that the code compiles for AArch64. Not part of `make test`: needs a Rust target and a cross compiler.
AARCH64 := aarch64-unknown-linux-gnu

# The session's threads under ThreadSanitizer. Not part of `make test`: needs a nightly Rust with its sources, and builds
# the standard library. Left out are tests of the process's own memory, which the sanitizer changes.
check-threads:
	cd crates/session && RUSTFLAGS=-Zsanitizer=thread TSAN_OPTIONS=die_after_fork=0 CARGO_TARGET_DIR=$(CURDIR)/build/threads \
	  cargo +nightly test -Zbuild-std --target $$(rustc -vV | sed -n 's/^host: //p') --lib --locked -- --skip composition --skip memory

check-aarch64:
	@missing=; \
	[ -d "$$(rustc --print target-libdir --target $(AARCH64))" ] || missing=" 'rustup target add $(AARCH64)'"; \
	command -v aarch64-linux-gnu-gcc >/dev/null || missing="$$missing 'apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross'"; \
	if [ -n "$$missing" ]; then echo "nthbyte: not checked for AArch64; first:$$missing" >&2; exit 1; fi
	RUSTFLAGS="-D warnings" cargo check --workspace --locked --target $(AARCH64)

check-ruff: .venv/ready
	@status=0; $(BIN)/ruff check . || status=1; $(BIN)/ruff format --check . || status=1; exit $$status

check-mypy: .venv/ready
	$(BIN)/mypy

# Checks the directions of imports, the lengths and names of files, and the words.
check-structure: .venv/ready
	cd tests && ../$(BIN)/python -m structure

test-structure: .venv/ready check-structure
	$(BIN)/python -m pytest --noconftest --numprocesses=0 tests/structure tests/release

# The programs that read exports: the Firefox Profiler's engine, speedscope, a checker of schemas.
build/formats/ready: tests/formats/package-lock.json tests/formats/requirements.txt .venv/ready
	if command -v npm >/dev/null; then cd tests/formats && npm ci --silent --no-audit --no-fund; fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/formats/requirements.txt
	mkdir -p $(@D) && touch $@

# Servers whose workers are profiled, in a venv of their own.
build/processes/ready: tests/processes/requirements.txt
	$(PYTHON) -m venv build/processes
	build/processes/bin/python -m pip install --quiet --disable-pip-version-check -r tests/processes/requirements.txt
	touch $@

# NumPy and pandas for tests/native, in a venv of its own.
build/native/ready: tests/native/requirements.txt
	$(PYTHON) -m venv build/native
	build/native/bin/python -m pip install --quiet --disable-pip-version-check -r tests/native/requirements.txt
	touch $@

# The frameworks that tests/labels labels: a folder for each version of Python.
build/labels/ready: tests/labels/requirements.txt tests/labels/packages.sh .venv/ready
	sh tests/labels/packages.sh $(BIN)/python $(@D)
	touch $@

# Ray and Spark, for the same.
build/clusters/ready: tests/labels/clusters.txt .venv/ready
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(@D)/packages -r tests/labels/clusters.txt
	touch $@

# The translated programs of tests/rpython, if there is a Python 2.7; otherwise their tests are skipped.
build/rpython/ready: tests/rpython/translate.py tests/rpython/requirements.txt $(wildcard tests/rpython/programs/*.py) | .venv/ready
	$(BIN)/python tests/rpython/translate.py build/rpython
	mkdir -p $(@D) && touch $@

test-rpython: all build/site/installed build/rpython/ready
	$(BIN)/python -m pytest tests/rpython

test-native: all build/site/installed build/native/ready
	$(BIN)/python -m pytest tests/native

test-cpython: all build/site/installed
	$(BIN)/python -m pytest tests/cli tests/cpython tests/freethreaded tests/diff tests/labels tests/leaks tests/python --ignore=tests/labels/test_integrations.py --ignore=tests/labels/test_clusters.py

# The ready labels of web frameworks, with servers under load.
test-integrations: all build/site/installed build/labels/ready build/clusters/ready
	$(BIN)/python -m pytest tests/labels/test_integrations.py tests/labels/test_clusters.py

OF_GO := tests/formats/test_collector.py tests/formats/test_pyroscope.py

test-formats: all build/site/installed build/formats/ready
	$(BIN)/python -m pytest tests/formats $(OF_GO:%=--ignore=%)

# An OpenTelemetry Collector of its released modules. Without Go, or its modules, what `nthbyte ship` sends to it is not tested.
build/collector/collector: tests/collector/main.go tests/collector/go.mod tests/collector/go.sum
	mkdir -p $(@D)
	cd tests/collector && go build -o $(CURDIR)/$@ .

# Pyroscope's push API, of the module with it. That of its server is not to be had as a module.
build/collector/pyroscope: tests/pyroscope/main.go tests/pyroscope/go.mod tests/pyroscope/go.sum
	mkdir -p $(@D)
	cd tests/pyroscope && go build -o $(CURDIR)/$@ .

test-collector: all build/site/installed build/formats/ready
	@missing=; \
	if ! command -v go >/dev/null; then missing=" go"; \
	elif ! $(MAKE) --no-print-directory build/collector/collector build/collector/pyroscope; then missing=" a build of tests/collector or tests/pyroscope"; fi; \
	if [ -z "$$missing" ]; then \
	  $(BIN)/python -m pytest --numprocesses=0 $(OF_GO); \
	elif [ "$$NTHBYTE_REQUIRE_ALL" = 1 ]; then \
	  echo "nthbyte: the Collector cannot be tested, and NTHBYTE_REQUIRE_ALL=1; missing:$$missing" >&2; exit 1; \
	else \
	  echo "nthbyte: no Collector was tested; missing:$$missing" >&2; \
	fi

test-processes: all build/site/installed build/processes/ready
	$(BIN)/python -m pytest tests/processes

test-pypy: all build/site/installed
	$(BIN)/python -m pytest --numprocesses=0 tests/pypy

# The agents for ARM64, with the interpreters of `make interpreters TREES=arm64` in an emulator. All with NTHBYTE_EVERY_INTERPRETER=1; otherwise
# only the libraries for CPython are built, and what needs no others is tested with one version.
EMULATED := build/emulated
EMULATED_SITE := $(EMULATED)/$(if $(NTHBYTE_EVERY_INTERPRETER),site,some)
EMULATED_TESTS := $(if $(NTHBYTE_EVERY_INTERPRETER),,-k "(known_program or native_memory) and python3.14 or fast_path")

$(EMULATED)/some/installed: $(SOURCES) build/release/ready build/site/installed
	@PATH="$(CURDIR)/build/release/tools/bin:$$PATH" cargo zigbuild --quiet --profile quick --locked --target $(AARCH64).2.17 \
	  -p nthbyte-cpython -p nthbyte-native
	@rm -rf $(@D) && mkdir -p $(@D) && cp -r build/site/nthbyte $(@D)/ && rm -r $(@D)/nthbyte/bin $(@D)/nthbyte/*.so
	@cp $(TARGET)/$(AARCH64)/quick/libnthbyte_cpython.so $(TARGET)/$(AARCH64)/quick/libnthbyte_native.so $(@D)/nthbyte/
	@touch $@

$(EMULATED)/site/installed: $(SOURCES) build/release/ready
	@rm -rf $(EMULATED)/wheels $(EMULATED)/site
	@PATH="$(CURDIR)/build/release/tools/bin:$$PATH" NTHBYTE_TARGET=aarch64 NTHBYTE_PROFILE=quick NTHBYTE_PYTHONS= \
	  build/release/tools/bin/python -m hatchling build -t wheel -d $(EMULATED)/wheels
	@build/release/tools/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --only-binary :all: \
	  --platform manylinux_2_17_aarch64 --target $(EMULATED)/site $(EMULATED)/wheels/*.whl
	@touch $@

test-emulated: all build/site/installed
	@missing=; \
	[ -e $(EMULATED)/arm64/complete ] || missing="$$missing 'make interpreters TREES=arm64'"; \
	command -v qemu-aarch64 >/dev/null || missing="$$missing qemu-user"; \
	command -v aarch64-linux-gnu-objdump >/dev/null || missing="$$missing binutils-aarch64-linux-gnu"; \
	[ -d "$$(rustc --print target-libdir --target $(AARCH64))" ] || missing="$$missing 'rustup target add $(AARCH64)'"; \
	if [ -n "$$missing" ]; then echo "nthbyte: ARM64 was not tested; missing:$$missing" >&2; exit 0; fi; \
	$(MAKE) --no-print-directory $(EMULATED_SITE)/installed && $(BIN)/python -m pytest --numprocesses=2 tests/emulated $(EMULATED_TESTS)

# The reports alone, for macOS, which no machine here runs.
MACOS := aarch64-apple-darwin

build/macos/built: $(SOURCES) build/release/ready
	@rm -rf build/macos
	@PATH="$(CURDIR)/build/release/tools/bin:$$PATH" NTHBYTE_TARGET=macos_arm64 NTHBYTE_PROFILE=quick NTHBYTE_PYTHONS= \
	  build/release/tools/bin/python -m hatchling build -t wheel -d build/macos
	@touch $@

test-macos: .venv/ready
	@if [ ! -d "$$(rustc --print target-libdir --target $(MACOS))" ]; then \
	  echo "nthbyte: the wheel for macOS was not tested; missing: 'rustup target add $(MACOS)'" >&2; exit 0; fi; \
	$(MAKE) --no-print-directory build/macos/built && $(BIN)/python -m pytest --noconftest --numprocesses=0 tests/macos

# A few rounds of the stress program on each interpreter.
test-soak: all build/site/installed
	$(BIN)/python -m pytest tests/soak

# A hundred modules of the interpreters' own tests, and two packages, with nthbyte and without.
test-compatibility: all build/site/installed
	$(BIN)/python -m pytest tests/compatibility

# All modules, and the suites of packages, into docs/compatibility.md; see tests/compatibility/README.md. It takes many
# hours, can be stopped, and then goes on: `make compatibility JOBS=2 WHAT=packages ONLY=numpy,lxml OPTIONS=--no-native`.
JOBS ?= 1
BATCH ?= 1
WHAT ?= all
LIMIT ?= 300

build/compatibility/ready: tests/compatibility/requirements.txt
	$(PYTHON) -m venv build/compatibility/venv
	build/compatibility/venv/bin/python -m pip install --quiet --disable-pip-version-check -r tests/compatibility/requirements.txt
	touch $@

compatibility: all build/site/installed build/compatibility/ready
	cd tests && ../build/compatibility/venv/bin/python -m compatibility --jobs $(JOBS) --batch $(BATCH) --what $(WHAT) \
	  --limit $(LIMIT) --only "$(or $(ONLY),*)" --interpreter "$(INTERPRETER)" --options="$(OPTIONS)" \
	  $(if $(QUICK),--quick) $(if $(AGAIN),--again) $(if $(KEEP),--keep)

# Whole programs with nthbyte and without, into docs/compatibility-programs.md: `make compatibility-programs ONLY='"Valgrind" PEX'`.
compatibility-programs: all build/site/installed
	cd tests && $(PYTHON) -m compatibility.whole_programs $(ONLY)

# The same for longer: `make soak MINUTES=60 SEED=1 ONLY=cpython-3.13`. A failing round can be repeated; see the script.
MINUTES ?= 60
SEED ?= 1

soak: all build/site/installed
	$(BIN)/python tests/soak/soak.py --minutes $(MINUTES) --seed $(SEED) --only "$(ONLY)"

# The page of `nthbyte flamegraph` and the server of `nthbyte view`, in a real browser.
CHROMIUM ?= /usr/bin/chromium
export CHROMIUM

# What drives the browser, for the tests and for the benchmarks.
build/page/driver: tests/page/package-lock.json
	if command -v npm >/dev/null; then npm --prefix tests/page ci --silent --no-audit --no-fund; fi
	mkdir -p $(@D) && touch $@

build/page/ready: web/package-lock.json build/page/driver
	npm --prefix web ci --silent --no-audit --no-fund
	mkdir -p $(@D) && touch $@

test-page:
	@missing=; \
	command -v npm >/dev/null || missing=" npm"; \
	[ -x "$(CHROMIUM)" ] || missing="$$missing chromium"; \
	if [ -z "$$missing" ]; then \
	  $(MAKE) --no-print-directory build/page/ready && npm --prefix tests/page test; \
	elif [ "$$NTHBYTE_REQUIRE_ALL" = 1 ]; then \
	  echo "nthbyte: the page cannot be tested, and NTHBYTE_REQUIRE_ALL=1; missing:$$missing" >&2; exit 1; \
	else \
	  echo "nthbyte: the page was not tested; missing:$$missing" >&2; \
	fi

## The documentation site

build/guide/ready: site/requirements.txt
	$(PYTHON) -m venv build/guide
	build/guide/bin/python -m pip install --quiet --disable-pip-version-check -r site/requirements.txt
	touch $@

# Builds the site into build/docs. A warning is an error.
docs: build/guide/ready
	NO_MKDOCS_2_WARNING=1 build/guide/bin/mkdocs build --quiet --strict --config-file site/mkdocs.yml

# Runs the programs of the tutorials, and writes what they show, with pictures, into docs/; and both references.
docs-outputs: all
	$(BIN)/python site/reference.py
	$(BIN)/python site/outputs.py

# Checks the site with all its links and anchors, that the commands in the documents exist, and that the reference of
# the Python API is up to date.
check-docs: docs .venv/ready
	$(BIN)/python site/links.py
	$(BIN)/python site/commands.py
	$(BIN)/python site/reference.py --check api

# Checks what makes the guide's pages, and that the reference of the command is up to date.
test-guide: all
	$(BIN)/python -m pytest --noconftest --numprocesses=0 tests/guide
	$(BIN)/python site/reference.py --check command

# Runs the tutorials again: what the pages expect of each output must be in the new one.
test-tutorials: all
	$(BIN)/python site/outputs.py --check

## The measurements

# What cannot be installed of the other tools is left out: the experiments say so.
build/bench/ready: bench/requirements.txt bench/peers.txt build/bench/packages/ready
	$(PYTHON) -m venv build/bench
	build/bench/bin/python -m pip install --quiet --disable-pip-version-check -r bench/requirements.txt
	for list in peers native; do \
	  build/bench/bin/python -m pip install --quiet --disable-pip-version-check -r bench/$$list.txt || \
	  echo "nthbyte: some packages of bench/$$list.txt could not be installed, and are not measured" >&2; \
	done
	touch $@

# The packages of the programs of native memory for another interpreter: $(call install-for,FOLDER,IMPLEMENTATION,VERSION,ABI,LIST)
install-for = $(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target build/bench/packages/$(1) \
	  --only-binary :all: --implementation $(2) --python-version $(3) --abi $(4) --abi abi3 --abi none --platform any \
	  --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 -r bench/$(5).txt || \
	  echo "nthbyte: the packages of bench/$(5).txt could not be installed for Python $(3), and are not measured" >&2

build/bench/packages/ready: bench/native.txt bench/native-pypy.txt .venv/ready
	mkdir -p build/bench/packages
	$(call install-for,cp314,cp,3.14,cp314,native)
	$(call install-for,pp311,pp,3.11,pypy311_pp73,native-pypy)
	touch $@

build/bench/installed: build/bench/ready $(WHEELS)/built
	build/bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall $(WHEELS)/*.whl
	touch $@

# Runs the experiments of bench/evaluation, and writes docs/evaluation.md: all, or ONLY="peers period". QUICK=1 measures just
# enough to see that everything works, and leaves docs/ as it is. ROUNDS=1 measures each pair once.
bench: system build/bench/installed build/page/driver
	build/bench/bin/python bench/run.py $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS))

# The pages that `make bench` writes, from the measurements in docs/.
test-bench: .venv/ready
	$(BIN)/python -m pytest --noconftest --numprocesses=0 tests/bench -k "not quick"

# Every experiment of `make bench`, each as short as can be.
test-experiments: .venv/ready
	@$(MAKE) --no-print-directory bench QUICK=1
	$(BIN)/python -m pytest --noconftest --numprocesses=0 tests/bench

# Instructions and cache misses of the programs, with valgrind. It takes hours, but every run gives the same counts.
count: system build/bench/installed
	build/bench/bin/python bench/count.py

# What the jobs of tests/leaks import, in a venv of its own.
build/leaks/ready: tests/leaks/requirements.txt
	$(PYTHON) -m venv build/leaks
	build/leaks/bin/python -m pip install --quiet --disable-pip-version-check -r tests/leaks/requirements.txt
	touch $@

# Planted leaks, clean services and jobs of one pass, twenty times each, into docs/leaks.md.
RUNS ?= 20
leaks: all build/site/installed build/leaks/ready
	$(BIN)/python tests/leaks/planted.py --runs $(RUNS) --write docs/leaks.md

# The same leaks under memray too, into docs/leaks.md.
leaks-peers: build/bench/installed
	build/bench/bin/python bench/leaks/peers.py --write docs/leaks.md

clean:
	rm -rf build dist .venv .venv-pypy $(TARGET)
