"""Real servers that run already: they are attached to while they work, again and again."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import harness
from processes import servers

pytestmark = pytest.mark.slow

# How often each process is attached to.
TIMES = 5
# The least that a server is asked meanwhile.
REQUESTS = 40
# A recording goes on until its process has answered so often, or the server so often if others do.
ANSWERS, OF_OTHERS = 2, 30


def processes(first: int) -> list[int]:
    """Returns the numbers of a process and of all that it has started."""
    found = [first]
    for number in found:
        for children in Path(f"/proc/{number}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found


def attach_while(folder: Path, numbers: list[int], ask: Callable[[], Counter[int]]) -> Counter[int]:
    """Attaches to each process and lets go, while ``ask`` is called again and again; returns all answers."""
    answers: Counter[int] = Counter()
    done = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not done.is_set() or sum(answers.values()) < REQUESTS:
                answers.update(ask())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for time in range(TIMES):
            for number in numbers:
                name = f"{number}-{time}.nthb"
                words = ["attach", str(number), "--every", "4KiB", "-o", name, "--timeout", "5min"]
                with subprocess.Popen(
                    [str(harness.COMMAND), *words], cwd=folder, stderr=subprocess.PIPE, text=True
                ) as attached:
                    assert attached.stderr is not None
                    assert "recording" in attached.stderr.readline()
                    before = answers.copy()
                    while thread.is_alive() and answers[number] < before[number] + ANSWERS:
                        if answers.total() >= before.total() + OF_OTHERS:
                            break
                        done.wait(0.05)
                    attached.send_signal(signal.SIGINT)
                    assert f"see it with: nthbyte explain {name}" in attached.stderr.read()
    finally:
        done.set()
        thread.join()
    assert not failures, failures
    return answers


def check(folder: Path, first: int, numbers: list[int], answers: Counter[int]) -> None:
    """Checks that the same processes answered as before, and that what they did is in the profiles."""
    assert processes(first) == numbers
    assert set(answers) <= set(numbers)
    names = {
        row["name"]
        for number in answers
        for time in range(TIMES)
        for row in harness.summary(folder / f"{number}-{time}.nthb", "--by", "function")["rows"]
    }
    assert any("work" in name for name in names)


def log_of(folder: Path) -> str:
    """Returns what the server has said; it names no error."""
    text = (folder / "log").read_text()
    for word in ("Traceback", "nthbyte", "TIMEOUT", "SIG"):
        assert word not in text, text
    return text


def test_gunicorn(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(servers.APP)
    words = ["-m", "gunicorn", "--workers", "2", "--bind", "127.0.0.1:0", "--timeout", str(servers.LIMIT)]
    with servers.running([*words, "app:wsgi"], tmp_path, is_recorded=False) as process:
        url = servers.address(process, tmp_path)
        servers.said(process, tmp_path, "Booting worker", 2)
        servers.ask(url, REQUESTS)
        numbers = processes(process.pid)
        assert len(numbers) == 3
        answers = attach_while(tmp_path, numbers, lambda: servers.ask(url, 5))
        check(tmp_path, process.pid, numbers, answers)
    assert process.returncode == 0
    log_of(tmp_path)


def test_uvicorn(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(servers.APP)
    words = ["-m", "uvicorn", "--host", "127.0.0.1", "--port", "0", "app:asgi"]
    with servers.running(words, tmp_path, is_recorded=False) as process:
        servers.said(process, tmp_path, "Application startup complete", 1)
        url = servers.address(process, tmp_path)
        numbers = processes(process.pid)
        answers = attach_while(tmp_path, numbers, lambda: servers.ask(url, 5))
        check(tmp_path, process.pid, numbers, answers)
    assert "Finished server process" in log_of(tmp_path)


def ask_by(script: str, folder: Path, times: int, *words: str) -> Counter[int]:
    """Lets a script ask so many times; returns which processes have answered, and how often."""
    done = subprocess.run(
        [servers.python(), "-c", script, str(times), *words],
        cwd=folder,
        env=servers.variables(),
        capture_output=True,
        text=True,
        timeout=servers.LIMIT,
    )
    assert done.returncode == 0, done.stderr
    return Counter(map(int, done.stdout.split()))


def test_celery(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(servers.TASKS)
    words = ["-m", "celery", "-A", "tasks", "worker", "--pool", "prefork", "--concurrency", "2"]
    quiet = ["--loglevel", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"]

    def ask(times: int = 10) -> Counter[int]:
        return ask_by(servers.ASK_TASKS, tmp_path, times)

    with servers.running([*words, *quiet], tmp_path, is_recorded=False) as process:
        ask()
        numbers = processes(process.pid)
        assert len(numbers) == 3
        answers = attach_while(tmp_path, numbers, ask)
        check(tmp_path, process.pid, numbers, answers)
    log_of(tmp_path)


def test_a_kernel_of_jupyter(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(servers.APP)
    words = ["-m", "ipykernel_launcher", "-f", str(tmp_path / "kernel.json")]
    with servers.running(words, tmp_path, is_recorded=False) as process:
        servers.wait(process, "the kernel's file", (tmp_path / "kernel.json").exists)

        def ask(times: int = 5) -> Counter[int]:
            return ask_by(servers.ASK_KERNEL, tmp_path, times)

        ask()
        numbers = processes(process.pid)
        answers = attach_while(tmp_path, numbers, ask)
        check(tmp_path, process.pid, numbers, answers)
        ask_by(servers.ASK_KERNEL, tmp_path, 1, "end")
        process.wait(servers.LIMIT)
    assert process.returncode == 0
    log_of(tmp_path)
