"""Builds the Rust half and puts it into the wheel: the agents, and the command for all but ``run``.

The wheel also has the bytecode of its modules, for each version of Python that this machine has. Compiling them takes
as long as two starts of Python, and would happen at every start where the folder is read-only, where
``PYTHONDONTWRITEBYTECODE`` is set, or where the installer does not compile (``uv``, ``pip --no-compile``).
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

AGENTS = ["libnthbyte_cpython.so", "libnthbyte_pypy.so", "libnthbyte_native.so", "libnthbyte_program.so"]
COMMAND = "bin/nthbyte"
SOURCES = "python/nthbyte"

# Names of interpreters to look for. NTHBYTE_PYTHONS names others: commands, separated by semicolons.
PYTHONS = ["python3.11", "python3.12", "python3.13", "python3.14", "python3.15", "pypy3"]

# Compiles modules: reads their sources by name from standard input, and writes the bytecode by file name. The bytecode
# contains a hash of the source. Python compares it with the source at each import, and compiles an edited source.
COMPILE = """
import base64, importlib.util, json, marshal, sys
if sys.version_info >= (3, 9):
    found = {}
    for name, text in json.load(sys.stdin).items():
        source = text.encode()
        code = marshal.dumps(compile(source, name, "exec", dont_inherit=True, optimize=0))
        head = importlib.util.MAGIC_NUMBER + (3).to_bytes(4, "little") + importlib.util.source_hash(source)
        file = f"{name[:-3]}.{sys.implementation.cache_tag}.pyc"
        found[file] = base64.b64encode(head + code).decode()
    print(json.dumps(found))
"""
NAMES = ["cpython", "pypy", "native", "program", "cli"]
PACKAGES = [word for name in NAMES for word in ("-p", f"nthbyte-{name}")]


class CargoBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs cargo. The wheel is for one platform, and for every Python there: nothing links to libpython."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds both binaries; ``version`` is ``editable`` for a development install."""
        if self.target_name != "wheel":
            return
        release = self._cargo_build()
        built = {release / agent: agent for agent in AGENTS}
        built[release / "nthbyte"] = COMMAND
        if version == "editable":
            for source, name in built.items():
                destination = Path(self.root, "python", "nthbyte", name)
                destination.parent.mkdir(exist_ok=True)
                # Replaced, not overwritten: a process may have the old one mapped.
                fresh = destination.with_name(destination.name + ".new")
                shutil.copy2(source, fresh)
                fresh.replace(destination)
        else:
            build_data["force_include"].update(
                {str(source): f"nthbyte/{name}" for source, name in built.items()}
            )
            self._bytecode = tempfile.TemporaryDirectory()
            for file, data in compile_all(Path(self.root, SOURCES), interpreters()).items():
                path = Path(self._bytecode.name, file)
                path.write_bytes(data)
                build_data["force_include"][str(path)] = f"nthbyte/__pycache__/{file}"
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"

    def _cargo_build(self) -> Path:
        """Builds in release mode and returns the folder of the results."""
        if shutil.which("cargo") is None:
            raise SystemExit("nthbyte: building from source needs cargo: install Rust 1.88 or later")
        command = ["cargo", "build", "--release", "--locked", *PACKAGES]
        if subprocess.run(command, cwd=self.root).returncode:
            raise SystemExit(f"nthbyte: {' '.join(command)} failed, see above")
        metadata = subprocess.run(
            ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"],
            cwd=self.root,
            check=True,
            stdout=subprocess.PIPE,
        )
        return Path(json.loads(metadata.stdout)["target_directory"], "release")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes the temporary files."""
        if hasattr(self, "_bytecode"):
            self._bytecode.cleanup()


def interpreters() -> list[list[str]]:
    """The commands of the interpreters that compile the modules."""
    named = os.environ.get("NTHBYTE_PYTHONS")
    if named is not None:
        return [shlex.split(command) for command in named.split(";") if command.strip()]
    return [[sys.executable], *([path] for name in PYTHONS if (path := shutil.which(name)))]


def compile_all(folder: Path, commands: list[list[str]]) -> dict[str, bytes]:
    """Compiles the modules of a folder with each interpreter. Returns the bytecode by file name.

    An interpreter that does not run is left out: then that version compiles the modules itself.
    """
    sources = json.dumps({path.name: path.read_text() for path in sorted(folder.glob("*.py"))})
    found: dict[str, bytes] = {}
    for command in commands:
        try:
            done = subprocess.run(
                [*command, "-I", "-S", "-c", COMPILE],
                input=sources,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            files = json.loads(done.stdout) if done.returncode == 0 and done.stdout else {}
        except (OSError, ValueError):
            continue
        found.update({name: base64.b64decode(data) for name, data in files.items()})
    return found
