"""Limits of tests: what fails, by how much, and with which words."""

from __future__ import annotations

import sys

import pytest

from nthbyte._agent import COMMAND

pytest_plugins = ["pytester"]

# The header of a bytes object, and the zero at its end.
HEADER = sys.getsizeof(b"")

SUITE = f"""
import mmap
import threading
import unittest

import pytest

KEPT = []

def block(size):
    return bytes(size - {HEADER})

@pytest.mark.limit_memory("2 KB")
def test_memory_below():
    block(2047)
    block(2047)

@pytest.mark.limit_memory("2 KB")
def test_memory_at():
    block(2048)

@pytest.mark.limit_memory("2 KB", current_thread_only=True)
def test_memory_of_this_thread():
    thread = threading.Thread(target=lambda: block(5000))
    thread.start()
    thread.join()

@pytest.mark.limit_memory("100 KB")
def test_small_below_an_arena():
    small = [i + 0.5 for i in range(10_000)]

@pytest.mark.limit_memory("3 MB")
def test_small_of_arenas():
    small = [(i,) for i in range(100_000)]

@pytest.mark.limit_allocated("20 KB")
def test_allocated():
    for _ in range(10):
        block(2048)

@pytest.mark.limit_leaks("5 KB")
def test_leaks_below():
    KEPT.append(block(5119))

@pytest.mark.limit_leaks("5KB")
def test_leaks():
    KEPT.extend([block(1024) for _ in range(5)])

@pytest.mark.limit_leaks("5 KB", filter_fn=lambda stack: stack.frames[0].function != "block")
def test_leaks_where_they_may():
    KEPT.append(block(9000))

class Node:
    pass

@pytest.mark.limit_leaked_objects
def test_objects():
    KEPT.append(Node())

@pytest.mark.limit_leaked_objects(filter_fn=lambda one: not isinstance(one, Node))
def test_objects_that_may_stay():
    KEPT.append(Node())

@pytest.mark.limit_leaked_objects
def test_objects_in_a_circle():
    node = Node()
    node.self = node

@pytest.mark.limit_memory("1 B")
def test_failing():
    data = block(100)
    raise KeyError("its own")

def test_unlimited():
    KEPT.append(block(50_000))

@pytest.mark.limit_memory("20 MB")
def test_untouched():
    # Nothing of it is ever in memory.
    KEPT.append(mmap.mmap(-1, 20 << 20))

class TestMethods(unittest.TestCase):
    def setUp(self):
        # Allocations outside of the method do not count.
        self.own = block(100_000)

    @pytest.mark.limit_memory("64 KB")
    def test_method_at(self):
        block(65536)

    @pytest.mark.limit_memory("64 KB")
    def test_method_below(self):
        block(65535)

class TestAwaited(unittest.IsolatedAsyncioTestCase):
    @pytest.mark.limit_memory("1 MB")
    async def test_awaited(self):
        block(1 << 20)
"""

# What fails, and why.
SAID = {
    "test_memory_at": "Test was limited to 2.0KiB but allocated 2.0KiB",
    "test_small_of_arenas": "Test was limited to 3.0MiB but allocated *MiB",
    "test_allocated": "Test was limited to allocate 20.0KiB in all but allocated 20.*KiB",
    "test_leaks": "Test was allowed to leak 5.0KiB per location but at least one location leaked more",
    "test_objects": "Test leaked 1 objects",
    "test_failing": "KeyError: 'its own'",
    "test_untouched": "Test was limited to 20.0MiB but allocated 20.0MiB",
    "TestMethods::test_method_at": "Test was limited to 64.0KiB but allocated 64.0KiB",
    "TestAwaited::test_awaited": "Test was limited to 1.0MiB but allocated *MiB",
}


@pytest.mark.parametrize(
    "options", [[], ["--nthbyte"], ["-n2"]], ids=["alone", "in a recorded run", "under xdist"]
)
def test_limits_are_exact(options: list[str], pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    run = pytester.runpytest("-v", *options)
    lines = [line for line in run.outlines if line.startswith(("FAILED", "MEMORY PROBLEMS"))]
    assert {line.partition("::")[2].partition(" ")[0] for line in lines} == set(SAID)
    assert [line for line in lines if line.startswith("FAILED") and "test_failing" not in line] == []
    for name, words in SAID.items():
        run.stdout.fnmatch_lines(
            [f"* {name.replace('::', '.')} *", *([] if name == "test_failing" else [f"*{words}"])]
        )
    run.stdout.fnmatch_lines(
        ["*List of allocations:", "    - 2.0KiB allocated here:", "        block:*.py:10"]
    )
    # Of what was freed, too: where all of it was allocated.
    run.stdout.fnmatch_lines(
        [
            "*nthbyte-allocated*",
            "*List of * allocations:",
            "    - 20.*KiB allocated here:",
            "        block:*.py:10",
            "        test_allocated:*.py:*",
        ]
    )
    if "--nthbyte" in options:
        # The test has its figures in the table, too, and the line that allocated most of them.
        run.stdout.fnmatch_lines(["Left alive at the end", "*2?.? MiB*  test_*.py:[0-9]*  *test_untouched"])
        # What ran between them is in profiles of the same run.
        [first] = pytester.path.glob("*.tests.json")
        profile = first.with_name(first.name.replace(".tests.json", ".nthb"))
        [part] = pytester.path.glob(f"{profile.stem}.*.nthb")
        explained = pytester.run(COMMAND, "explain", profile)
        assert explained.ret == 0 and part.name not in "".join(explained.errlines)


def test_what_limits_of_another_kind_say(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    pytester.makeini("[pytest]\nmemray = true\ntrace_python_allocators = true\n")
    whole = pytester.runpytest("--stacks", "1", "-k", "small")
    whole.stdout.fnmatch_lines(["*= nthbyte =*"])
    pytester.makeini("[pytest]")
    whole.assert_outcomes(failed=2)
    estimated = pytester.runpytest("--nthbyte", "--nthbyte-estimate", "-k", "small_of_arenas or allocated")
    # Not the test fails, but the run.
    estimated.assert_outcomes(passed=2)
    assert estimated.ret == pytest.ExitCode.TESTS_FAILED
    estimated.stdout.fnmatch_lines(
        ["nthbyte: *test_small_of_arenas exceeds its limit_memory of 3.0MiB: * to *"]
    )
    pytester.makepyfile(
        test_two="""
        import pytest

        @pytest.mark.limit_leaks("1 MB")
        @pytest.mark.limit_memory("1 MB")
        def test_two():
            pass
        """
    )
    pytester.runpytest("test_two.py").stdout.fnmatch_lines(
        ["*Only one Memray marker can be applied to each test*"]
    )


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ('limit_memory("24 pages")', "Invalid memory size format: 24 pages; write *"),
        ("limit_memory(24)", "Invalid memory size format: 24; write *"),
        ("limit_leaks()", 'it takes one size, such as "24 MB"'),
        ('limit_allocated("1 MB", filter_fn=None)', "it has no filter_fn"),
    ],
)
def test_a_wrong_limit_is_said_before_any_test_runs(
    marker: str, said: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(f"import pytest\n\n@pytest.mark.{marker}\ndef test_one(): pass")
    run = pytester.runpytest()
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.fnmatch_lines([f"ERROR: *::test_one: {marker.partition('(')[0]}: {said}"])


@pytest.mark.parametrize("option", ["--native", "--memray-bin-path=.", "--memray-bin-prefix=x"])
def test_an_option_of_pytest_memray_that_is_not_there_is_named(
    option: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("def test_one(): pass")
    run = pytester.runpytest(option)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    name = option.partition("=")[0]
    run.stderr.fnmatch_lines([f"ERROR: {name} is an option of pytest-memray: with nthbyte, *"])


def test_pytest_memray_that_is_switched_off_is_as_if_not_installed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(pytest_memray="", test_one="def test_one(): pass")
    pytester.syspathinsert()
    pytester.runpytest("--native").stderr.fnmatch_lines(["*unrecognized arguments: --native*"])
    run = pytester.runpytest("-p", "no:memray", "--native")
    run.stderr.fnmatch_lines(["ERROR: --native is an option of pytest-memray: *"])
