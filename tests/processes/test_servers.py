"""Servers with several workers, real ones: one answer for each."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import harness
from processes import family, servers

# How often each server is asked, whoever of its workers answers.
REQUESTS = 40


def tickets(of: Any) -> float:
    """Returns the bytes of the objects that only requests make."""
    rows = [row for row in of["rows"] if row["name"].endswith("Ticket")]
    return sum(row["self_bytes"]["estimate"] for row in rows)


def has_tickets(profile: Path) -> bool:
    """Whether the profile of a worker that runs has tickets by now."""
    return any(name.endswith("Ticket") for name in harness.rows_so_far(profile, "--by", "type"))


def check(folder: Path, answers: Counter[int]) -> Any:
    """Checks the family, and that its tickets are from the workers that answered."""
    first = folder / "app.nthb"
    whole = family.check(first)
    assert sum(answers.values()) == REQUESTS
    assert len(whole["processes"]) == 3
    assert {process["pid"] for process in whole["processes"][1:]} >= set(answers)
    assert all(process["parent_pid"] == whole["pid"] for process in whole["processes"][1:])
    by_type = {path: tickets(harness.summary(path, "--by", "type")) for path in family.parts_of(first)}
    workers = {first.with_name(f"app.{pid}.nthb") for pid in answers}
    assert {path for path, found in by_type.items() if found} == workers
    return whole


def check_amount(folder: Path) -> None:
    """Checks that the tickets are as many as were made, within six standard deviations: three times the interval."""
    [row] = [
        row
        for row in harness.summary(folder / "app.nthb", "--all", "--by", "type")["rows"]
        if row["name"].endswith("Ticket")
    ]
    low, estimate, high = (row["allocations"][name] for name in ("low", "estimate", "high"))
    made = REQUESTS * servers.OBJECTS
    assert estimate - 3 * (estimate - low) < made < estimate + 3 * (high - estimate)


def check_end(folder: Path) -> None:
    """Checks that the one line at the end says how to see all processes."""
    [line] = [line for line in (folder / "log").read_text().splitlines() if line.startswith("nthbyte: ")]
    assert "2 child processes" in line
    assert line.endswith("nthbyte explain app.nthb")


def test_gunicorn(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(servers.APP)
    words = ["-m", "gunicorn", "--workers", "2", "--bind", "127.0.0.1:0", "--timeout", str(servers.LIMIT)]
    words += ["--graceful-timeout", str(servers.LIMIT)]
    with servers.running([*words, "app:wsgi"], tmp_path) as process:
        answers = servers.ask(servers.address(process, tmp_path), REQUESTS)
    whole = check(tmp_path, answers)
    assert whole["complete"]
    # The sum of objects is counted; native memory's is an estimate.
    assert harness.summary(tmp_path / "app.nthb", "--all", "--domain", "python")["bytes_counted"]
    check_amount(tmp_path)
    check_end(tmp_path)


def test_uvicorn(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(servers.APP)
    words = ["-m", "uvicorn", "--workers", "2", "--host", "127.0.0.1", "--port", "0"]
    # It kills a worker that does not answer in this time.
    words += ["--timeout-worker-healthcheck", str(servers.LIMIT)]
    with servers.running([*words, "app:asgi"], tmp_path) as process:
        # It names the address before its workers listen.
        servers.said(process, tmp_path, "Application startup complete", 2)
        answers = servers.ask(servers.address(process, tmp_path), REQUESTS)
        # Its workers let the signal that stops them end them: what came in the last moment is not in their profiles, so
        # how much they allocated is not known for sure.
        profiles = [tmp_path / f"app.{pid}.nthb" for pid in answers]
        servers.wait(process, "tickets", lambda: all(map(has_tickets, profiles)))
    check(tmp_path, answers)
    check_end(tmp_path)


def test_celery(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(servers.TASKS)
    words = ["-m", "celery", "-A", "tasks", "worker", "--pool", "prefork", "--concurrency", "2"]
    quiet = ["--loglevel", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    with servers.running([*words, *quiet], tmp_path):
        asked = subprocess.run(
            [servers.python(), "-c", servers.ASK_TASKS, str(REQUESTS)],
            cwd=tmp_path,
            env=servers.variables(),
            capture_output=True,
            text=True,
            timeout=servers.LIMIT,
        )
        assert asked.returncode == 0, asked.stderr
    answers = Counter(map(int, asked.stdout.split()))
    whole = check(tmp_path, answers)
    assert whole["complete"]
    check_amount(tmp_path)
    check_end(tmp_path)


def with_hook(folder: Path) -> dict[str, str]:
    """Returns an environment in which ``nthbyte.pth`` is read, as where nthbyte is installed."""
    (folder / "sitecustomize.py").write_text(f"import site; site.addsitedir({str(harness.SITE)!r})\n")
    return {"PYTHONPATH": f"{folder}:{harness.SITE}"}


@pytest.mark.slow
def test_what_a_reloader_starts(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(servers.APP)
    words = ["-m", "uvicorn", "--reload", "--host", "127.0.0.1", "--port", "0", "app:asgi"]
    answers: Counter[int] = Counter()
    with servers.running(words, tmp_path, environment=with_hook(tmp_path)) as process:

        def is_reloaded() -> bool:
            # What changes before its first look at the files, it does not see.
            os.utime(app)
            return "detected changes" in (tmp_path / "log").read_text()

        for number in (1, 2):
            servers.said(process, tmp_path, "Application startup complete", number)
            now = servers.ask(servers.address(process, tmp_path), REQUESTS)
            # A signal ends the server: what came in the last moment is not in its profile.
            [pid] = now
            profile = tmp_path / f"app.{pid}.nthb"
            servers.wait(process, "tickets", lambda profile=profile: has_tickets(profile))  # type: ignore[misc]
            answers += now
            if number == 1:
                servers.wait(process, "a restart", is_reloaded)
    assert len(answers) >= 2
    whole = family.check(tmp_path / "app.nthb")
    children = whole["processes"][1:]
    assert {one["parent_pid"] for one in children} == {whole["pid"]}
    assert set(answers) <= {one["pid"] for one in children}


@pytest.mark.slow
def test_a_kernel_that_a_program_starts(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(servers.APP)
    (tmp_path / "start.py").write_text(servers.START_KERNEL)
    with servers.running(["start.py"], tmp_path, environment=with_hook(tmp_path)) as process:
        process.wait(servers.LIMIT)
    log = (tmp_path / "log").read_text()
    assert process.returncode == 0, log
    kernel = next(int(line) for line in log.splitlines() if line.isdigit())
    assert log.splitlines()[-1].endswith("1 child process; see it with: nthbyte explain app.nthb")
    assert {one["pid"] for one in family.check(tmp_path / "app.nthb")["processes"][1:]} == {kernel}
    assert has_tickets(tmp_path / f"app.{kernel}.nthb")
