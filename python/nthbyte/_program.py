"""``nthbyte run -- ./program``: runs a program of native code, in the place of this process.

The agent for such programs is preloaded. It begins the session before the program's ``main``, and takes itself and its
settings out of the environment: see ``crates/program``.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys

from nthbyte._agent import NATIVE_LIBRARY, PROGRAM_LIBRARY, Error, interpreter, to_json, with_utf8_paths
from nthbyte._command_line import HEAD, Program, fail, is_python_script
from nthbyte._family import is_interpreter
from nthbyte._options import OPTIONS
from nthbyte._session import as_text, configure
from nthbyte._size import CONSTANT_PERIOD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

# The variable with the settings, which crates/program/src/settings.rs reads.
_VARIABLE = b"NTHBYTE_PROGRAM"

# The options that have a meaning for a program without Python. The first group is that of a session's settings.
_SETTINGS = ("force", "every", "seed", "tags")
_OTHERS = ("output", "quiet", "native", "native_frames", "fixed")

# Of an ELF file: the kinds of programs that processors run (e_machine), and of segments (p_type).
_PROCESSORS = {
    3: "x86 with 32 bits",
    40: "ARM with 32 bits",
    62: "x86-64",
    183: "AArch64",
    243: "RISC-V",
    258: "LoongArch",
}
_OWN_PROCESSOR = 183 if os.uname().machine == "aarch64" else 62
_INTERPRETER_SEGMENT = 3


def recognise(program: Program) -> Program:
    """Returns the program as what its file is: native code, or a script as given. Exits if it can be neither."""
    try:
        with open(program.target, "rb") as file:
            head = file.read(HEAD)
    except OSError:
        # The same error is explained where the script is read.
        return program
    if head.startswith(b"\x7fELF"):
        return Program("native", program.target, program.arguments, program.command_line)
    first = head.partition(b"\n")[0]
    if head.startswith(b"#!") and not is_python_script(head):
        shell = first[2:].decode(errors="replace").strip()
        fail(
            f"{program.target} is a script for {shell}: name the program that it starts, or run it with "
            f"nthbyte run -- {shell} {program.target}",
            2,
        )
    return program


def execute(program: Program, options: dict[str, Any]) -> NoReturn:
    """Replaces this process by the program, under the profiler. Exits on an error.

    ``options`` are those of the command line, by name.
    """
    path = program.target
    _refuse_others(options, path)
    output = options["output"] or program.default_output
    defaults = {option.name: option.default for option in OPTIONS}
    settings = {**defaults, **{name: options[name] for name in _SETTINGS}}
    try:
        config: dict[str, Any] = {**configure(output, settings, program.command_line)}
        if options["fixed"]:
            _fix_distances(config, options)
        check(path)
        libraries = _libraries()
    except ValueError as error:
        fail(str(error), 2)
    except Error as error:
        fail(str(error), 1)
    # The agent names the C library in place of an interpreter, and claims the profile's file.
    config.update(
        native=True,
        native_frames=True,
        executable=as_text(os.path.abspath(path)),
        interpreter="",
    )
    _restore_signals()
    try:
        os.execve(path, program.command_line, _environment(libraries, config, options))
    except OSError as error:
        missing = error.errno == errno.ENOENT and os.path.exists(path)
        fail(f"cannot run {path}: {'its dynamic linker is missing' if missing else error.strerror}", 1)


def _fix_distances(config: dict[str, Any], options: dict[str, Any]) -> None:
    """Makes the distances equal, for a translated RPython program: which one is, its agent finds out.

    The check of options knows only what this Python has. Raises ValueError if other options exclude it.
    """
    if options["every"] is None:
        config.update(auto=False, period=CONSTANT_PERIOD)
    if config["auto"] or config["distances"] != "exponential":
        raise ValueError("--fixed needs a period: give a size of 64 bytes or more with --every")
    config["distances"] = "fixed"


def check(path: str) -> None:
    """Raises ValueError, with one line for the user, if the program cannot be profiled."""
    name = os.path.basename(path)
    if not os.access(path, os.X_OK):
        raise ValueError(f"{path} is not executable: make it so with chmod +x")
    if is_interpreter(name) or is_interpreter(os.path.basename(os.path.realpath(path))):
        raise ValueError(_about_python(path))
    machine, linker = _read_elf(path)
    if machine != _OWN_PROCESSOR:
        what = _PROCESSORS.get(machine, "another processor")
        raise ValueError(
            f"{path} is built for {what}: nthbyte profiles native programs for {_PROCESSORS[_OWN_PROCESSOR]} here"
        )
    if linker is None:
        raise ValueError(
            f"{path} is statically linked, so nothing can be preloaded: link it dynamically (without -static)"
        )
    if not os.path.basename(linker).startswith("ld-linux"):
        raise ValueError(f"{path} needs {linker}: nthbyte works with the GNU C library only")
    status = os.stat(path)
    gains_user = status.st_mode & stat.S_ISUID and status.st_uid != os.getuid()
    gains_group = status.st_mode & stat.S_ISGID and status.st_gid != os.getgid()
    if gains_user or gains_group or (os.getuid() != 0 and _has_capabilities(path)):
        raise ValueError(
            f"{path} runs with other rights than yours (setuid), so nothing can be preloaded: run nthbyte as its owner"
        )


def _about_python(path: str) -> str:
    if os.path.realpath(path) == os.path.realpath(sys.executable):
        return f"leave out {path!r}: nthbyte run SCRIPT runs it with {interpreter()}, {sys.executable}"
    return f"{path} is a Python: profile its programs with {path} -m nthbyte run SCRIPT"


def _read_elf(path: str) -> tuple[int, str | None]:
    """Returns the processor of an ELF file, and the path of its dynamic linker, None if it is statically linked.

    Raises ValueError if the file is damaged.
    """
    with open(path, "rb") as file:
        header = file.read(64)
        machine = int.from_bytes(header[18:20], "big" if header[5:6] == b"\x02" else "little")
        if machine != _OWN_PROCESSOR or header[4:5] != b"\x02":
            # The same processor with addresses of 32 bits (x32) counts as another one.
            return (machine if machine != _OWN_PROCESSOR else 0), None
        start = int.from_bytes(header[32:40], "little")
        size, count = (int.from_bytes(header[at : at + 2], "little") for at in (54, 56))
        if size < 56:
            raise ValueError(f"{path} is a damaged program: its headers cannot be read")
        file.seek(start)
        segments = file.read(size * count)
        for at in range(0, len(segments) - size + 1, size):
            if int.from_bytes(segments[at : at + 4], "little") == _INTERPRETER_SEGMENT:
                file.seek(int.from_bytes(segments[at + 8 : at + 16], "little"))
                length = int.from_bytes(segments[at + 32 : at + 40], "little")
                return machine, os.fsdecode(file.read(min(length, 4096)).rstrip(b"\0"))
    return machine, None


def _has_capabilities(path: str) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability"))
    except (AttributeError, OSError):
        return False


def _refuse_others(options: dict[str, Any], path: str) -> None:
    """Exits if an option was given that a program without Python does not have."""
    for option in OPTIONS:
        if option.name not in (*_SETTINGS, *_OTHERS) and options[option.name] != option.default:
            fail(f"{option.flag} works with Python programs only: leave it out for {path}", 2)
    if options["native"] is False:
        fail(f"--no-native leaves nothing to record: {path} is native code", 2)


def _libraries() -> bytes:
    """Returns the value of LD_PRELOAD that loads the agent. Raises ValueError if there is none."""
    libraries = f"{NATIVE_LIBRARY}:{PROGRAM_LIBRARY}"
    if libraries.count(":") != 1 or any(sign.isspace() for sign in libraries):
        folder = os.path.dirname(PROGRAM_LIBRARY)
        raise ValueError(f"the path of nthbyte has a space or a colon, so nothing can be preloaded: {folder}")
    return os.fsencode(libraries)


def _environment(libraries: bytes, config: dict[str, Any], options: dict[str, Any]) -> dict[bytes, bytes]:
    """Returns the environment in which this process was started, with the agent and its settings."""
    # Not that of `os.environ`: Python itself sets LC_CTYPE in the C locale.
    try:
        with open("/proc/self/environ", "rb") as file:
            variables = [entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry]
        environment = {name: value for name, _, value in variables}
    except OSError:
        environment = dict(os.environb)
    before = environment.get(b"LD_PRELOAD")
    environment[b"LD_PRELOAD"] = libraries + (b":" + before if before else b"")
    # As numbers: a name need not be UTF-8.
    session = with_utf8_paths(config)
    settings = {
        "session": session,
        "force": options["force"],
        "quiet": options["quiet"],
        "preload": None if before is None else list(before),
    }
    environment[_VARIABLE] = to_json(settings).encode()
    return environment


def _restore_signals() -> None:
    """Gives the signals that Python ignores for itself their defaults, as ``subprocess`` does."""
    for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ"):
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, signal.SIG_DFL)
