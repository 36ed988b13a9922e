"""``nthbyte run``: runs a program under the profiler, in this interpreter.

The program must not notice. It gets the ``__main__``, ``sys.argv`` and ``sys.path`` that plain
Python would give it; an exception that it does not catch goes on to the interpreter, which prints it
and exits as it always does. Only the traceback is cut: it begins with the program's own frames.
"""

from __future__ import annotations

# importlib.machinery has them too, but is not there yet.
import _frozen_importlib
import _frozen_importlib_external
import os
import sys
import time

from nthbyte._agent import Error, load
from nthbyte._session import begin, configure, exiting, finish
from nthbyte._size import DEFAULT_PERIOD, format_size, parse_period

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType, TracebackType
    from typing import Any, Callable, NoReturn

    from nthbyte._agent import Result


class Program:
    """What to run: a script, a module or code."""

    def __init__(self, kind: str, target: str, arguments: list[str], command_line: list[str]):
        self.kind = kind
        """``script``, ``module`` or ``code``."""
        self.target = target
        """The path, the module's name or the code; ``-`` is the script on standard input."""
        self.arguments = arguments
        """What follows on the command line."""
        self.command_line = command_line
        """The words that plain Python would be started with."""

    @property
    def name(self) -> str:
        """A short name, for the profile."""
        if self.kind == "code":
            return "code"
        if self.kind == "module":
            return self.target
        if self.target == "-":
            return "stdin"
        return os.path.splitext(os.path.basename(os.path.abspath(self.target)))[0]


HUGE_PAGES = ("thp", "hugetlb", "off")


class Options:
    """The options of ``run``, with their defaults."""

    output: str | None = None
    every: int = DEFAULT_PERIOD
    fixed: bool = False
    seed: int | None = None
    cpu: int | None = None
    native: bool = False
    huge_pages: str = "thp"
    quiet: bool = False


# Options of `run` whose value is the next word: its attribute, and how the value is read.
_WITH_VALUE: dict[str, tuple[str, Callable[[str], Any]]] = {
    "-o": ("output", str),
    "--output": ("output", str),
    "--every": ("every", parse_period),
    "--seed": ("seed", int),
    "--cpu": ("cpu", int),
    "--huge-pages": ("huge_pages", lambda word: HUGE_PAGES[HUGE_PAGES.index(word)]),
}
_WITHOUT_VALUE = {"--fixed": "fixed", "--native": "native", "-q": "quiet", "--quiet": "quiet"}


def main(words: list[str]) -> None:
    """Runs ``nthbyte run`` with these words after it. Exits on an error; else returns with the program."""
    own, program = split(words)
    options = _plain(own)
    if options is None:
        from nthbyte._arguments import parse

        options = parse(own, Options())
    if program is None:
        fail("what is to run? nthbyte run (SCRIPT | -m MODULE | -c CODE) [ARGS...]", 2)
    output = options.output or f"nthbyte-{program.name}.{os.getpid()}.nthb"
    try:
        config = configure(
            output,
            every=options.every,
            fixed=options.fixed,
            seed=options.seed,
            cpu=options.cpu,
            native=options.native,
            huge_pages=options.huge_pages,
            command=program.command_line,
        )
    except ValueError as error:
        fail(str(error), 2)
    _become(program)
    execute = _prepare(program)
    limit = _stop_tracemalloc()
    try:
        begin(config, at_exit=None if options.quiet else _Farewell(config["output"]))
    except Error as error:
        fail(str(error), 1)
    if limit:
        import tracemalloc

        tracemalloc.start(limit)
    _execute(execute)


def split(words: list[str]) -> tuple[list[str], Program | None]:
    """Splits the words into nthbyte's own and the program, which begins at the first that is no option."""
    at = 0
    while at < len(words):
        word, rest = words[at], words[at + 1 :]
        for option, kind in (("-m", "module"), ("-c", "code")):
            if word.startswith(option):
                target = [word[2:]] if len(word) > 2 else rest[:1]
                rest = rest if len(word) > 2 else rest[1:]
                if not target:
                    fail(f"{option} needs the {kind} that is to run", 2)
                return words[:at], Program(kind, target[0], rest, words[at:])
        if word == "--":
            return words[:at], Program("script", rest[0], rest[1:], rest) if rest else None
        if word == "-" or not word.startswith("-"):
            return words[:at], Program("script", word, rest, words[at:])
        at += 2 if word in _WITH_VALUE else 1
    return words, None


def _plain(words: list[str]) -> Options | None:
    """Reads options that are as they should be; None if ``argparse`` has something to say to them.

    ``argparse`` would keep 1.4 MB of the program's memory: a twentieth of what many a program uses.
    """
    options = Options()
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word in _WITHOUT_VALUE:
            setattr(options, _WITHOUT_VALUE[word], True)
            continue
        if word in _WITH_VALUE:
            value = next(rest, "")
        elif name not in _WITH_VALUE or not name.startswith("--") or not equals:
            return None
        attribute, read = _WITH_VALUE[name]
        if not value or value.startswith("-"):
            return None
        try:
            setattr(options, attribute, read(value))
        except ValueError:
            return None
    return options


def _stop_tracemalloc() -> int:
    """Stops tracemalloc (-X tracemalloc), which must come after nthbyte, and returns its limit of frames.

    When it stops it puts back the allocator before it, and CPython's own cannot free nthbyte's blocks.
    """
    if sys.implementation.name == "pypy":
        return 0
    import _tracemalloc

    if not _tracemalloc.is_tracing():
        return 0
    limit = _tracemalloc.get_traceback_limit()
    _tracemalloc.stop()
    return limit


def _become(program: Program) -> None:
    """Puts ``sys`` into the state in which plain Python would start the program."""
    words = program.command_line
    original = getattr(sys, "orig_argv", None)
    if original:
        # What stands before nthbyte's own words are options of the interpreter; -m or the script is the last.
        own = len(sys.argv) - 1
        interpreter = original[: len(original) - own]
        interpreter = interpreter[: -2 if interpreter[-2:-1] == ["-m"] else -1]
        sys.orig_argv = [*interpreter, *words]
    first = {"script": program.target, "module": "-m", "code": "-c"}[program.kind]
    sys.argv[:] = [first, *program.arguments]
    if _has_safe_path():
        return
    if program.kind == "module":
        sys.path[0] = os.getcwd()
    elif program.kind == "code" or program.target == "-":
        sys.path[0] = ""
    else:
        sys.path[0] = os.path.dirname(os.path.realpath(program.target))


def _has_safe_path() -> bool:
    """Whether the interpreter was told to put nothing of the program's before ``sys.path``."""
    return bool(getattr(sys.flags, "safe_path", False) or sys.flags.isolated)


def _prepare(program: Program) -> Callable[[], Any]:
    """Returns a call that runs the program. Exits if it is a script that cannot be read."""
    launcher = sys.modules["__main__"]
    main = type(sys)("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __loader__=_frozen_importlib.BuiltinImporter)
    if "__annotations__" in launcher.__dict__:
        # CPython up to 3.13 begins with it.
        main.__dict__.update(__annotations__={})
    # The module that was `__main__` until now still runs: somebody must hold it.
    sys.modules["nthbyte.__main__"] = launcher
    sys.modules["__main__"] = main
    if program.kind == "module":
        return lambda: _run_module(program.target)
    if program.kind == "code":
        return lambda: _run_code(program.target, main)
    if program.target != "-" and _is_package_path(program.target):
        path = os.path.join(os.getcwd(), program.target)
        if _has_safe_path():
            sys.path.insert(0, path)
        else:
            sys.path[0] = path
        return lambda: _run_module("__main__", alter_argv=False)
    return _prepare_script(program.target, main)


def _run_code(source: str, main: ModuleType) -> None:
    is_indented = source.lstrip("\n").startswith((" ", "\t"))
    if is_indented and sys.version_info >= (3, 14) and sys.implementation.name == "cpython":
        import textwrap

        source = textwrap.dedent(source)
    code = _compile(source.encode(), "<string>", False)
    if sys.version_info >= (3, 13) and sys.implementation.name == "cpython":
        import linecache

        # Tracebacks show the source of -c since CPython 3.13, which keeps it under the file's name, and
        # since its first bug fixes under the code.
        key = code if hasattr(linecache, "_interactive_cache") else "<string>"
        linecache._register_code(key, source, "<string>")  # type: ignore[attr-defined]
    exec(code, main.__dict__)


def _compile(source: bytes, name: str, is_file: bool) -> CodeType:
    if sys.implementation.name == "cpython" and b"\0" not in source:
        return load().compile(source, name, is_file)
    return compile(source if is_file else source.decode(), name, "exec", dont_inherit=True)


def _run_module(name: str, alter_argv: bool = True) -> None:
    import runpy

    # What the interpreter itself calls for -m, and for folders and zip files.
    runpy._run_module_as_main(name, alter_argv)  # type: ignore[attr-defined]


def _is_package_path(path: str) -> bool:
    """Whether the path is a folder or a zip file with a ``__main__`` in it."""
    # As the interpreter finds out: a hook that can import from it takes it.
    for hook in sys.path_hooks:
        try:
            hook(path)
            return True
        except ImportError:
            # Another hook may take it.
            pass
    return False


def _prepare_script(path: str, main: ModuleType) -> Callable[[], Any]:
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
        fail(f"can't open {path!r}: {error.strerror}", 2)
    loader: Any
    if path == "-":
        loader = _frozen_importlib.BuiltinImporter
    elif path.endswith(".pyc"):
        loader = _frozen_importlib_external.SourcelessFileLoader("__main__", loaded)
    else:
        loader = _frozen_importlib_external.SourceFileLoader("__main__", loaded)
    main.__dict__.update(__file__=name, __loader__=loader)
    if sys.version_info < (3, 15):
        main.__dict__["__cached__"] = None

    def execute() -> None:
        ready = path.endswith(".pyc")
        code = loader.get_code("__main__") if ready else _compile(source, compiled, True)
        exec(code, main.__dict__)

    return execute


def _execute(program: Callable[[], Any]) -> None:
    try:
        program()
    except SystemExit:
        raise
    except BaseException as error:
        _hide_own_frames(error)
        if isinstance(error, KeyboardInterrupt) and sys.implementation.name == "pypy":
            # PyPy kills itself then, and calls nothing that is registered with atexit.
            exiting()
        raise


def _hide_own_frames(error: BaseException) -> None:
    """Makes the interpreter report this exception as if the program alone had been running."""
    traceback = error.__traceback__
    rest = traceback
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == __file__:
            rest = traceback.tb_next
        traceback = traceback.tb_next
    hook = getattr(sys, "excepthook", None)

    def report(kind: type[BaseException], value: BaseException, longer: TracebackType | None) -> Any:
        if hook is None:
            # What the interpreter does where the program has deleted it.
            del sys.excepthook
            if sys.implementation.name == "cpython":
                print("sys.excepthook is missing", file=sys.stderr)
            return sys.__excepthook__(kind, error.with_traceback(rest), rest)
        sys.excepthook = hook
        if value is not error:
            return hook(kind, value, longer)
        sys.last_traceback = rest
        return hook(kind, error.with_traceback(rest), rest)

    # The interpreter calls the hook with the frames that it passes on its way out, ours among them.
    sys.excepthook = report


class _Farewell:
    """Ends the session and says where the profile is: the one line of nthbyte."""

    def __init__(self, path: str):
        self._path = path
        self._pid = os.getpid()
        self._started = time.time()

    def __call__(self) -> None:
        try:
            result = finish()
        except Error:
            # Stopped by the program, or nothing was begun.
            return
        if os.getpid() != self._pid or sys.__stderr__ is None:
            return
        try:
            sys.__stderr__.write(f"nthbyte: {self._line(result)}\n")
            sys.__stderr__.flush()
        except (OSError, ValueError):
            # The program has closed it: then nobody reads it.
            pass

    def _line(self, result: Result) -> str:
        shown = os.path.relpath(result.path)
        shown = shown if len(shown) < len(result.path) else result.path
        said = [f"{result.samples:,} samples"]
        if result.bytes_allocated is not None:
            said[0] += f" of {format_size(result.bytes_allocated)} allocated"
        children = self._children()
        if children:
            said.append("1 child process" if children == 1 else f"{children} child processes")
        if result.lost:
            said.append(f"{result.lost:,} events lost")
        said.extend(note.rstrip(".") for note in result.notes)
        return f"{', '.join(said)}; to look: nthbyte summary {shown}"

    def _children(self) -> int:
        """The number of children's profiles: ``app.1234.nthb`` beside ``app.nthb``, and not older."""
        stem, suffix = os.path.splitext(self._path)
        folder, start = os.path.split(stem + ".")
        try:
            return sum(
                entry.name.startswith(start)
                and entry.name.endswith(suffix)
                and entry.name[len(start) : len(entry.name) - len(suffix)].isdecimal()
                and entry.stat().st_mtime >= self._started
                for entry in os.scandir(folder)
            )
        except OSError:
            return 0


def fail(message: str, status: int) -> NoReturn:
    """Says one line and exits: 2 for a wrong command, 1 where it could not be done."""
    print(f"nthbyte: {message}", file=sys.stderr)
    sys.exit(status)
