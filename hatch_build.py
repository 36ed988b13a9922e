"""Builds the Rust half and puts it into the wheel: the agents, and the command for all but ``run``.

Without further settings it builds for this machine. Variables of the environment change that:

- ``NTHBYTE_TARGET``: a target of :data:`TARGETS`. cargo-zigbuild links it against an old C library (``make wheels``).
- ``NTHBYTE_PROFILE``: a profile of Cargo.toml, ``release`` if it is not given.
- ``NTHBYTE_FEATURES``: the features of the command (crates/cli/Cargo.toml), all if it is not given.
- ``NTHBYTE_PYTHONS``: see :data:`PYTHONS`.

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
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

AGENTS = ["cpython", "pypy", "native", "program"]
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
        # References to earlier objects (version 3 on) are not always the same ones on PyPy.
        version = 2 if sys.implementation.name == "pypy" else marshal.version
        code = marshal.dumps(compile(source, name, "exec", dont_inherit=True, optimize=0), version)
        head = importlib.util.MAGIC_NUMBER + (3).to_bytes(4, "little") + importlib.util.source_hash(source)
        file = f"{name[:-3]}.{sys.implementation.cache_tag}.pyc"
        found[file] = base64.b64encode(head + code).decode()
    print(json.dumps(found))
"""


class Target(NamedTuple):
    """What a wheel for other machines is built for."""

    triple: str
    """As cargo-zigbuild takes it: a target of Rust, with the version of the C library."""
    platform: str
    """The platform of the wheel's tag."""
    records: bool = True
    """Whether programs can be recorded there. Otherwise the wheel has the reports alone."""


# glibc 2.17 is the oldest that Rust's standard library works with.
TARGETS = {
    "x86_64": Target("x86_64-unknown-linux-gnu.2.17", "manylinux_2_17_x86_64"),
    "aarch64": Target("aarch64-unknown-linux-gnu.2.17", "manylinux_2_17_aarch64"),
    "macos_arm64": Target("aarch64-apple-darwin", "macosx_11_0_arm64", records=False),
    "macos_x86_64": Target("x86_64-apple-darwin", "macosx_11_0_x86_64", records=False),
}


class CargoBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs cargo. The wheel is for one platform, and for every Python there: nothing links to libpython."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the binaries; ``version`` is ``editable`` for a development install."""
        if self.target_name != "wheel":
            return
        target = self._target()
        built_by_cargo = self._cargo_build(target)
        agents = AGENTS if target is None or target.records else []
        built = {built_by_cargo / name: name for name in (f"libnthbyte_{agent}.so" for agent in agents)}
        built[built_by_cargo / "nthbyte"] = COMMAND
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
        here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        platform = target.platform if target else here
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"

    def _target(self) -> Target | None:
        """The target that the environment names; None for this machine."""
        name = os.environ.get("NTHBYTE_TARGET")
        if name is None:
            return None
        if name not in TARGETS:
            raise SystemExit(f"nthbyte: NTHBYTE_TARGET is {name!r}: use one of {', '.join(TARGETS)}")
        return TARGETS[name]

    def _cargo_build(self, target: Target | None) -> Path:
        """Builds the packages, and returns the folder of the results."""
        if shutil.which("cargo") is None:
            raise SystemExit("nthbyte: building from source needs cargo: install Rust 1.88 or later")
        metadata = subprocess.run(
            ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"],
            cwd=self.root,
            check=True,
            stdout=subprocess.PIPE,
        )
        folder = Path(json.loads(metadata.stdout)["target_directory"])
        profile = os.environ.get("NTHBYTE_PROFILE", "release")
        command = ["cargo", "zigbuild" if target else "build", "--profile", profile, "--locked"]
        environment = dict(os.environ)
        if target:
            # So that the folders of the sources are there, which the options name.
            subprocess.run(["cargo", "fetch", "--locked", "--quiet"], cwd=self.root, check=True)
            command += ["--target", target.triple]
            environment["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join(_without_paths(folder))
        features, agents = os.environ.get("NTHBYTE_FEATURES"), AGENTS
        if target and not target.records:
            # As in the tag.
            environment["MACOSX_DEPLOYMENT_TARGET"] = "11.0"
            # `ship` asks the system for its certificates, by libraries that zig does not have.
            features, agents = "live", []
        if features is not None:
            command += ["--no-default-features", "--features", features]
        command += [word for name in [*agents, "cli"] for word in ("-p", f"nthbyte-{name}")]
        if subprocess.run(command, cwd=self.root, env=environment).returncode:
            raise SystemExit(f"nthbyte: {' '.join(command)} failed, see above")
        return folder / (target.triple.partition(".")[0] if target else "") / profile

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes the temporary files."""
        if hasattr(self, "_bytecode"):
            self._bytecode.cleanup()


def _without_paths(target: Path) -> list[str]:
    """Options of the compiler by which no path of this machine is in what it makes: other machines make the same bytes.

    The sources of this workspace have relative paths. ``target`` is cargo's folder for what it makes.
    """
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    sysroot, about = (
        subprocess.run(["rustc", *words], check=True, capture_output=True, text=True).stdout.strip()
        for words in (("--print", "sysroot"), ("-vV",))
    )
    commit = next(line.split()[1] for line in about.splitlines() if line.startswith("commit-hash:"))
    # Of several that match, the compiler takes the last.
    folders = {
        home: "cargo",
        **dict.fromkeys(sorted(home.glob("registry/src/*")), "registry"),
        target: "target",
        # Its own sources, if they are there (rust-src). A compiler without them names them so.
        Path(sysroot, "lib/rustlib/src/rust"): f"/rustc/{commit}",
    }
    return [f"--remap-path-prefix={path}={name}" for path, name in folders.items()]


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
    # With a seed, PyPy writes a constant set in the same order each time. Not `-I`: it would ignore the seed.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYPY"))
    }
    environment["PYTHONHASHSEED"] = "0"
    for command in commands:
        try:
            done = subprocess.run(
                [*command, "-s", "-S", "-c", COMPILE],
                input=sources,
                # Modules are also imported from there.
                cwd="/",
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            files = json.loads(done.stdout) if done.returncode == 0 and done.stdout else {}
        except (OSError, ValueError):
            continue
        found.update({name: base64.b64decode(data) for name, data in files.items()})
    return found
