"""The Firefox Profiler's own engine, `@firefox-devtools/profiler-cli`, as a reader of exports."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

SESSION = "nthbyte-test"

# The engine waits half a second for its daemon to start, which is too short on a busy machine. So the daemon is
# started here in the same way, with this time limit in seconds. After that, another one is started:
# a client that connects too early treats the session as dead and removes its files.
START_TIMEOUT = 120
ATTEMPTS = 6


class Engine:
    """One session of the engine: a daemon that holds a profile."""

    def __init__(self, node: str, script: Path, folder: Path) -> None:
        self._words = [node, str(script)]
        # Sessions are files in a folder; each test has its own folder.
        self._sessions = folder / "sessions"
        self._environment = {**os.environ, "PROFILER_CLI_SESSION_DIR": str(self._sessions)}
        self._folder = folder
        self._daemon: subprocess.Popen[bytes] | None = None

    def load(self, path: Path) -> None:
        """Loads a profile."""
        log = self._folder / "engine.log"
        for _ in range(ATTEMPTS):
            with log.open("wb") as out:
                words = [*self._words, "--daemon", str(path), "--session", SESSION]
                self._daemon = subprocess.Popen(
                    words, env=self._environment, cwd=self._folder, stdout=out, stderr=out
                )
            if self._answers():
                return
            self.stop()
        raise AssertionError(f"the engine does not load {path}: {log.read_text()[-2000:]}")

    def _answers(self) -> bool:
        end = time.monotonic() + START_TIMEOUT
        while time.monotonic() < end and self._daemon and self._daemon.poll() is None:
            time.sleep(0.5)
            if any(self._sessions.glob("*.sock")) and self._call("profile", "info").returncode == 0:
                return True
        return False

    def ask(self, *arguments: str) -> Any:
        """Returns the answer to a command, as the engine's JSON."""
        done = self._call(*arguments, "--json")
        assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return json.loads(done.stdout)

    def threads(self) -> dict[str, str]:
        """Returns the handle of each thread, by its name."""
        threads = self.ask("thread", "list", "--limit", "0")["threads"]
        return {one["name"]: one["threadHandle"] for one in threads}

    def functions(self, thread: str, *options: str) -> list[dict[str, Any]]:
        """Returns the engine's data on each function of a thread."""
        self.ask("thread", "select", thread)
        answer = self.ask("thread", "functions", "--include-idle", "--limit", "0", *options)
        return list(answer["functions"])

    def stop(self) -> None:
        """Ends the session."""
        if self._daemon:
            self._daemon.terminate()
            self._daemon.wait(60)

    def _call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._words, *arguments, "--session", SESSION],
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
