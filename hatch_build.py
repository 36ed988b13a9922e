"""Builds the Rust half and puts it into the wheel: the agents, and the command for all but ``run``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

AGENTS = ["libnthbyte_cpython.so", "libnthbyte_pypy.so", "libnthbyte_native.so"]
COMMAND = "bin/nthbyte"
PACKAGES = ["-p", "nthbyte-cpython", "-p", "nthbyte-pypy", "-p", "nthbyte-native", "-p", "nthbyte-cli"]


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
