"""Counts the requests in the log of a web server, by path."""

from __future__ import annotations

import copy
import random
import re
from collections import Counter
from collections.abc import Iterator

LINES = 60_000
EMPTY = {"minute": "", "method": "", "path": "", "status": 0, "tags": {"bot": False, "slow": False}}


def log() -> Iterator[str]:
    """Yields the lines of the log."""
    chance = random.Random(1)
    for line in range(LINES):
        minute = f"{line // 6000:02}:{line // 100 % 60:02}"
        request = f"GET /item/{chance.randrange(40)}?ref={line}"
        yield f'10.0.0.{chance.randrange(250)} [{minute}] "{request}" 200 {line % 900}ms'


def parse(line: str) -> dict:
    record = copy.deepcopy(EMPTY)
    address, minute, method, target, status, time = re.split(r"[ ]+", line)
    record["minute"] = minute.strip("[]")
    record["method"] = method.strip('"')
    record["path"] = target.strip('"').split("?")[0]
    record["status"] = int(status)
    record["tags"]["bot"] = address.endswith(".66")
    record["tags"]["slow"] = int(time.removesuffix("ms")) > 800
    return record


def count(lines: Iterator[str]) -> Counter:
    requests: Counter = Counter()
    for line in lines:
        record = parse(line)
        if record["status"] == 200 and not record["tags"]["bot"]:
            requests[record["path"]] += 1
    return requests


def main() -> None:
    for path, number in count(log()).most_common(3):
        print(f"{path} {number}")


if __name__ == "__main__":
    main()
