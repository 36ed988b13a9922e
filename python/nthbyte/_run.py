"""``nthbyte run``: runs a program under the profiler, in this interpreter.

The program must not notice nthbyte. It gets the same ``__main__``, ``sys.argv`` and ``sys.path`` as without
nthbyte. The interpreter handles an uncaught exception as usual: it prints the exception and exits. Only the
traceback is shortened: it begins with the program's own frames.
"""

from __future__ import annotations

# These classes are also in importlib.machinery, which is not imported yet.
import _frozen_importlib
import _frozen_importlib_external
import os
import sys

from nthbyte._agent import Error, load, restart_tracemalloc, stop_tracemalloc
from nthbyte._end_line import EndLine, renamed, say
from nthbyte._session import begin, configure, discard, exiting, export, leave_children_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType, TracebackType
    from typing import Any, Callable

    from nthbyte._command_line import Program
    from nthbyte._config import Config

    # A function that runs the program, and its arguments.
    Call = tuple[Callable[..., Any], tuple[Any, ...]]
    Loader = Callable[[], Call]

# Modules that only the start needs. The functions here import them when they need them, so that nothing else holds
# them. A later session of the program imports them again.
_OF_THE_START = ("_command_line", "_environment", "_operations", "_options", "_size")


def start(words: list[str]) -> Running:
    """Starts the session. ``words`` are the arguments after ``nthbyte run``. Exits on an error."""
    from nthbyte._command_line import fail, read

    options, program = read(words)
    if program.is_name:
        from nthbyte._console_script import resolve

        program = resolve(program)
    elif program.may_be_native:
        from nthbyte._program import recognise

        program = recognise(program)
    if program.kind == "native":
        from nthbyte._program import execute

        execute(program, options)
    try:
        os.getcwd()
    except OSError as error:
        fail(f"there is no working folder ({error.strerror}): change to another one", 1)
    output = options.pop("output") or program.default_output
    is_quiet = options.pop("quiet")
    with_children = options.pop("children")
    schedule = {name: options.pop(name) for name in ("start_after", "for", "signal")}
    is_ready = options.pop("ready")
    if is_ready:
        _refuse_with_ready({**options, **schedule})
    try:
        config = configure(output, options, program.command_line)
    except ValueError as error:
        fail(str(error), 2)
    _become(program)
    running = Running(_prepare(program))
    limit = stop_tracemalloc()
    if not with_children:
        leave_children_alone()
    try:
        if is_ready:
            from nthbyte._ready import ready

            ready()
        else:
            record(config, options["force"], is_quiet, with_children, schedule)
    except Error as error:
        fail(str(error), 1)
    restart_tracemalloc(limit)
    return running


def _refuse_with_ready(options: dict[str, Any]) -> None:
    """Exits if an option of a recording is given, because ``nthbyte attach`` has those."""
    from nthbyte._command_line import fail
    from nthbyte._options import OPTIONS

    for option in OPTIONS:
        if option.name in options and options[option.name] != option.default:
            fail(f"--ready and {option.flag} exclude each other: give {option.flag} to nthbyte attach", 2)


def record(
    config: Config, force: bool, is_quiet: bool, with_children: bool, schedule: dict[str, Any]
) -> None:
    """Starts a session that lasts until the program ends, or as ``schedule`` says."""
    if any(value is not None for value in schedule.values()):
        _begin_by_schedule(config, force, is_quiet, with_children, schedule)
    else:
        _begin(config, force, is_quiet, with_children)


def _begin(config: Config, force: bool, is_quiet: bool, with_children: bool) -> None:
    """Starts a session that lasts until the program ends."""
    line = None if is_quiet else EndLine(config["output"], os.getcwd())
    at_signal = line.at_signal if line is not None else None
    path = begin(config, force=force, at_exit=line, at_signal=at_signal, exports=with_children)
    export()
    if line is not None:
        line.path = path
    if path != config["output"]:
        say(renamed(config["output"], path, os.getcwd()))
    _drop_modules()


def _drop_modules() -> None:
    """Drops what only the start needs, so that no full collection of the program visits these objects."""
    package = sys.modules["nthbyte"].__dict__
    for name in _OF_THE_START:
        sys.modules.pop(f"nthbyte.{name}", None)
        package.pop(name, None)
    # The list of the package's files.
    sys.path_importer_cache.pop(os.path.dirname(__file__), None)
    _drop_future()


def _drop_future() -> None:
    """Drops the module ``__future__`` with its 30 objects, if nthbyte's modules were the first to import it."""
    names = list(sys.modules)
    if "__future__" not in names[names.index("nthbyte") :]:
        return
    for name in names:
        if name.partition(".")[0] == "nthbyte":
            # What the statement `from __future__ import annotations` has left, which nothing reads.
            vars(sys.modules[name]).pop("annotations", None)
    del sys.modules["__future__"]


def _begin_by_schedule(
    config: Config, force: bool, is_quiet: bool, with_children: bool, schedule: dict[str, Any]
) -> None:
    """Starts a session later, or one that ends before the program, but installs the heap now."""
    from nthbyte._options import DEFAULT_HUGE_PAGES
    from nthbyte._schedule import Schedule

    if sys.implementation.name == "cpython" and config["huge_pages"] == DEFAULT_HUGE_PAGES:
        load().prepare()
    Schedule(
        config,
        force=force,
        is_quiet=is_quiet,
        with_children=with_children,
        start_after=schedule["start_after"],
        length=schedule["for"],
        signal=schedule["signal"],
    ).run()


class Running:
    """A program whose session has started."""

    def __init__(self, load: Loader):
        self._load = load
        self._has_loaded = False
        self._main = sys.modules["__main__"]
        self._own_loader = vars(self._main).get("__loader__")

    def execute(self) -> None:
        """Runs the program.

        ``__main__`` calls this method from its outermost frame, so that few frames of nthbyte lie below the program.
        """
        try:
            function, arguments = self._load()
            self._has_loaded = True
            if sys.implementation.name == "pypy":
                function(*arguments)
            elif function is exec:
                # Plain Python reports the same event for a script.
                sys.audit("exec", arguments[0])
                load().execute(*arguments)
            else:
                load().execute(function, arguments)
        except SystemExit:
            self._discard_unless_begun()
            raise
        except BaseException as error:
            self._discard_unless_begun()
            _hide_own_frames(error)
            if isinstance(error, KeyboardInterrupt) and sys.implementation.name == "pypy":
                # PyPy kills itself then, without calls of the functions registered with atexit.
                exiting()
            raise
        finally:
            # The end of the program destroys its objects then in the same order as without nthbyte.
            del self._load, self._main, self._own_loader

    def _discard_unless_begun(self) -> None:
        """Removes the profile of a program that could not be loaded."""
        # runpy sets both when it has found the module. Programs set the specification to None, too.
        main = vars(self._main)
        is_missing = main.get("__spec__") is None and main.get("__loader__") is self._own_loader
        if not self._has_loaded or (self._load.__name__ == "load_module" and is_missing):
            discard()


def _ends_with_m(word: str) -> bool:
    """Returns whether these are options of the interpreter that take no argument, and -m after them."""
    return word[:1] == "-" and word[-1:] == "m" and set(word[1:-1]) <= set("bBdEhiIOPqRsStuvVx")


def _become(program: Program) -> None:
    """Puts ``sys`` into the state in which plain Python would start the program."""
    words = program.command_line
    original = getattr(sys, "orig_argv", [])
    # The interpreter's own options come before nthbyte's arguments; -m or the script is the last of them.
    options = len(original) - len(sys.argv)
    # A program that calls nthbyte's `main` itself may have set other arguments; then the interpreter's stay.
    if options > 0 and original[options + 1 :] == sys.argv[1:]:
        interpreter = original[:options]
        if _ends_with_m(interpreter[-1]):
            # "-um" stands for "-u -m".
            interpreter[-1:] = [interpreter[-1][:-1]] if interpreter[-1] != "-m" else []
        sys.orig_argv = [*interpreter, *words]
    first = {"script": program.target, "module": "-m", "code": "-c"}[program.kind]
    sys.argv[:] = [first, *program.arguments]
    if _has_safe_path():
        return
    launcher = sys.path[0]
    if program.kind == "module":
        sys.path[0] = os.getcwd()
    elif program.kind == "code" or program.target == "-":
        sys.path[0] = ""
    else:
        sys.path[0] = os.path.dirname(os.path.realpath(program.target))
    if launcher not in sys.path:
        # The list of its files: the program would not have read it, and each full collection would visit it.
        sys.path_importer_cache.pop(launcher, None)


def _has_safe_path() -> bool:
    """Whether the interpreter runs with -P or -I, which keep the program's folder out of ``sys.path``."""
    return bool(getattr(sys.flags, "safe_path", False) or sys.flags.isolated)


def _prepare(program: Program) -> Loader:
    """Creates the program's ``__main__`` and returns its loader. Exits if the script is not readable."""
    launcher = sys.modules["__main__"]
    main = type(sys)("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __loader__=_frozen_importlib.BuiltinImporter)
    if "__annotations__" in launcher.__dict__:
        # CPython up to 3.13 creates it at the start.
        main.__dict__.update(__annotations__={})
    # The previous `__main__` module still runs. Without this reference it would be destroyed.
    sys.modules["nthbyte.__main__"] = launcher
    sys.modules["__main__"] = main
    if program.kind == "module":
        return _module_loader(program.target)
    if program.kind == "code":
        source = program.target
        return lambda: _load_code(source, main)
    if program.target != "-" and _is_package_path(program.target):
        path = os.path.join(os.getcwd(), program.target)
        if _has_safe_path():
            sys.path.insert(0, path)
        else:
            sys.path[0] = path
        return _module_loader("__main__", alter_argv=False)
    return _prepare_script(program.target, main)


def _load_code(source: str, main: ModuleType) -> Call:
    is_indented = source.lstrip("\n").startswith((" ", "\t"))
    if is_indented and sys.version_info >= (3, 14) and sys.implementation.name == "cpython":
        import textwrap

        source = textwrap.dedent(source)
    code = _compile(source.encode(), "<string>", False)
    if sys.version_info >= (3, 13) and sys.implementation.name == "cpython":
        import linecache

        # Tracebacks show the source of -c since CPython 3.13. Its first releases store the source under the file's
        # name, later ones under the code object.
        key = code if hasattr(linecache, "_interactive_cache") else "<string>"
        linecache._register_code(key, source, "<string>")  # type: ignore[attr-defined]
    return exec, (code, main.__dict__)


def _compile(source: bytes, name: str, is_file: bool) -> CodeType:
    if sys.implementation.name == "cpython" and b"\0" not in source:
        return load().compile(source, name, is_file)
    return compile(source if is_file else source.decode(), name, "exec", dont_inherit=True)


def _module_loader(name: str, alter_argv: bool = True) -> Loader:
    def load_module() -> Call:
        import runpy

        # The interpreter itself calls this function for -m, and for folders and zip files.
        return runpy._run_module_as_main, (name, alter_argv)  # type: ignore[attr-defined]

    return load_module


def _is_package_path(path: str) -> bool:
    """Whether the path is a folder or a zip file with a ``__main__`` in it."""
    # The interpreter decides in the same way: it tries each hook with the path.
    for hook in sys.path_hooks:
        try:
            hook(path)
            return True
        except (ImportError, OSError):
            # Another hook may be able to. Where a zip file cannot be looked for (`lseek` is refused, for example), the
            # interpreter goes on with the script, too.
            pass
    return False


def _prepare_script(path: str, main: ModuleType) -> Loader:
    pypy = sys.implementation.name == "pypy"
    name = "<stdin>" if path == "-" else os.path.join(os.getcwd(), path)
    if pypy and sys.version_info < (3, 10):
        name = os.path.normpath(name)
    loaded = path if pypy else name
    compiled = os.path.normpath(name) if pypy else name
    try:
        if path == "-":
            source = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                source = file.read()
    except OSError as error:
        from nthbyte._command_line import fail

        fail(f"can't open {path!r}: {error.strerror}", 2)
    is_compiled = path != "-" and _is_compiled(path, source)
    loader: Any
    if path == "-":
        loader = _frozen_importlib.BuiltinImporter
    elif is_compiled:
        loader = _frozen_importlib_external.SourcelessFileLoader("__main__", loaded)
    else:
        loader = _frozen_importlib_external.SourceFileLoader("__main__", loaded)
    main.__dict__.update(__file__=name, __loader__=loader)
    if sys.version_info < (3, 15):
        main.__dict__["__cached__"] = None

    def load() -> Call:
        code = loader.get_code("__main__") if is_compiled else _compile(source, compiled, True)
        return exec, (code, main.__dict__)

    return load


def _is_compiled(path: str, source: bytes) -> bool:
    """Whether the interpreter takes a script for compiled code. CPython also looks at the first two bytes
    (``maybe_pyc_file`` in ``Python/pythonrun.c``).
    """
    if path.endswith(".pyc"):
        return True
    magic = _frozen_importlib_external.MAGIC_NUMBER[:2]
    return sys.implementation.name == "cpython" and source[:2] == magic


def _hide_own_frames(error: BaseException) -> None:
    """Makes the interpreter report this exception without nthbyte's frames in the traceback."""
    traceback = error.__traceback__
    rest = traceback
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == __file__:
            rest = traceback.tb_next
        traceback = traceback.tb_next
    hook = getattr(sys, "excepthook", None)

    def report(kind: type[BaseException], value: BaseException, longer: TracebackType | None) -> Any:
        if hook is None:
            # The interpreter does the same if the program has deleted sys.excepthook.
            del sys.excepthook
            if sys.implementation.name == "cpython":
                print("sys.excepthook is missing", file=sys.stderr)
            return sys.__excepthook__(kind, error.with_traceback(rest), rest)
        sys.excepthook = hook
        if value is not error:
            return hook(kind, value, longer)
        sys.last_traceback = rest
        return hook(kind, error.with_traceback(rest), rest)

    # The exception still has to leave nthbyte's own frames, which adds them to the traceback. So the hook cuts it.
    sys.excepthook = report
