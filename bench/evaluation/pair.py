"""Runs commands at the same time: ``pair.py < COMMANDS``. Prints what each of them used, as JSON.

The harness starts it as a process of its own on one core, if need be inside of another Debian. It stays small: what a process
held before ``exec`` counts in its peak RSS. So it imports little, and it works with every Python from 3.9 on.

COMMANDS is a JSON list of objects: ``words``, ``environment``, ``folder``, and ``output``, the file that takes what the
command prints.
"""

import json
import os
import sys


def together(commands):
    """Starts all, waits for all, and returns a dictionary for each, in order."""
    processes = [_start(command) for command in commands]
    used = []
    for process in processes:
        _, status, usage = os.wait4(process, 0)
        used.append(
            {
                "status": os.waitstatus_to_exitcode(status),
                # Seconds of the process and of the children that it waited for.
                "cpu": usage.ru_utime + usage.ru_stime,
                "system": usage.ru_stime,
                "rss": usage.ru_maxrss * 1024,
                "faults": usage.ru_minflt,
            }
        )
    return used


def _start(command):
    process = os.fork()
    if process:
        return process
    try:
        os.chdir(command["folder"])
        null = os.open(os.devnull, os.O_RDONLY)
        out = os.open(command["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(null, 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.execvpe(command["words"][0], command["words"], command["environment"])
    except OSError as error:
        os.write(2, f"{error}\n".encode())
    os._exit(127)


if __name__ == "__main__":
    print(json.dumps(together(json.load(sys.stdin))))
