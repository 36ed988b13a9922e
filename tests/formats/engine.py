"""The Firefox Profiler's own engine, `@firefox-devtools/profiler-cli`, as a reader of exports."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any


class Engine:
    """One session of the engine: a daemon that holds a profile."""

    def __init__(self, node: str, script: Path, folder: Path) -> None:
        self._words = [node, str(script)]
        # The engine keeps its sockets under the home folder: a test has its own.
        self._environment = {**os.environ, "HOME": str(folder), "PROFILER_CLI_SESSION_DIR": str(folder)}
        self._folder = folder

    def load(self, path: Path) -> None:
        """Loads a profile."""
        self._run("load", str(path))

    def ask(self, *arguments: str) -> Any:
        """Returns the answer to a command, as the engine's JSON."""
        return json.loads(self._run(*arguments, "--json"))

    def use(self, strategy: str) -> None:
        """Chooses the data source: timing, native-retained-allocations, …"""
        self._run("strategy", strategy)

    def threads(self) -> dict[str, str]:
        """Returns the handle of each thread, by its name."""
        return {
            one["name"]: one["threadHandle"] for one in self.ask("thread", "list", "--limit", "0")["threads"]
        }

    def functions(self, thread: str) -> dict[str, dict[str, Any]]:
        """Returns what the engine says of each function of a thread, by its name."""
        self._run("thread", "select", thread)
        answer = self.ask("thread", "functions", "--include-idle", "--limit", "0")
        return {one["name"]: one for one in answer["functions"]}

    def stop(self) -> None:
        """Ends the session."""
        subprocess.run(
            [*self._words, "stop", "--all"], env=self._environment, capture_output=True, timeout=60
        )

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._words, *arguments],
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout
