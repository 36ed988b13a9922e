"""The modules that `make test` compares: a hundred that take about a second, and a few of minutes that matter most.

Each of the hundred runs on one of the interpreters, so that a run of the tests has them all.
`make compatibility QUICK=1` runs all of them on each.
"""

from __future__ import annotations

from collections.abc import Sequence

# Many of these exist in all versions; an interpreter leaves out what it does not have.
FAST = """
    test_abc test_abstract_numbers test_array test_ast test_atexit test_augassign test_base64
    test_baseexception test_binascii test_binop test_bisect test_bool test_builtin test_bytes test_call
    test_charmapcodec test_class test_cmath test_code test_codeccallbacks test_collections test_colorsys
    test_compare test_complex test_configparser test_contains test_context test_contextlib test_copy
    test_copyreg test_coroutines test_csv test_dataclasses test_decorators test_defaultdict test_deque
    test_descr test_dict test_dictviews test_difflib test_dis test_doctest test_dynamic test_enum
    test_enumerate test_exception_group test_exceptions test_extcall test_filter test_finalization
    test_float test_fnmatch test_format test_fractions test_frame test_fstring test_functools test_funcattrs
    test_gc test_generators test_genericalias test_genexps test_getopt test_glob test_global test_graphlib
    test_grp test_hash test_heapq test_html test_index test_inspect test_int test_ipaddress test_isinstance
    test_iter test_itertools test_json test_keyword test_keywordonlyarg test_linecache test_list
    test_listcomps test_long test_marshal test_math test_memoryview test_metaclass test_named_expressions
    test_operator test_ordered_dict test_patma test_pow test_pprint test_property test_raise test_range
    test_re test_richcmp test_scope test_set test_slice test_sort test_string test_struct test_super
    test_sys_setprofile test_sys_settrace test_textwrap test_traceback test_tracemalloc test_tuple
    test_types test_typing test_userdict test_weakref test_weakset test_with test_yield_from test_zlib
""".split()

# What shares most with the agents; on the newest CPython.
SLOW = ["test_threading", "test_io", "test_unicode", "test_capi"]
# On a PyPy of the system. In Debian's PyPy 8, test_threading does not end without nthbyte either.
SLOW_ON_PYPY = ["test_threading", "test_generators"]

# Not compared on a PyPy: 7.3.19 ends in a segmentation fault in five of thirty runs without nthbyte, too.
UNSTABLE_ON_PYPY = frozenset(["test_sys_settrace"])

MODULES = frozenset([*FAST, *SLOW])


def share(modules: Sequence[str], number: int, of: int) -> list[str]:
    """Returns the modules of the interpreter with this number, of so many interpreters."""
    return list(modules[number::of])
