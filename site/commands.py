"""Checks that the commands and options of nthbyte that the documents name are in docs/command.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from links import ROOT, documents

# What only an interpreter has that docs/command.md is not made with.
ELSEWHERE = {("run", "--fixed")}
# History, and texts that quote what others wrote.
LEFT_OUT = {"CHANGELOG.md"}
_COMMAND = re.compile(r"(?<![\w./-])nthbyte ([a-z]+)((?: +[^\n`#]*)?)")
_CODE = re.compile(r"^```[^\n]*\n(.*?)^```|`([^`\n]+)`|^ {4}(\S[^\n]*)$", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^## `nthbyte (\w+)`\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
# An option, its short form, its opposite and its value, as argparse and clap show them.
_OPTION = re.compile(
    r"^ +(?:(-\w)(?: [A-Z]+)?, )?(--[\w-]+)(?:, (--no-[\w-]+))?(?:(=?)[ \[=]*([A-Z<][^ ]*))?", re.MULTILINE
)


def known() -> dict[str, dict[str, bool]]:
    """Returns the options of each command, and whether a word with their value follows."""
    found: dict[str, dict[str, bool]] = {}
    for name, text in _SECTION.findall((ROOT / "docs" / "command.md").read_text()):
        found[name] = {"-m": True, "-c": True} if name == "run" else {}
        for short, long, opposite, _, value in _OPTION.findall(text):
            found[name].update({one: bool(value) for one in (short, long, opposite) if one})
    return found


def wrong_commands(text: str, commands: dict[str, dict[str, bool]]) -> Iterator[str]:
    """Yields a line for each command or option in a document's code that there is not."""
    for code in _CODE.findall(text):
        for name, rest in _COMMAND.findall(next(part for part in (*code, "") if part)):
            if name not in commands:
                # In code, but a sentence: "nthbyte samples one in every …".
                if re.search(r" -", rest):
                    yield f"there is no `nthbyte {name}`"
                continue
            for option in _options(rest.split(), commands[name], ends_at_program=name in ("run", "tune")):
                if option not in commands[name] and (name, option) not in ELSEWHERE:
                    yield f"`nthbyte {name}` has no {option}"


def _options(words: list[str], options: dict[str, bool], ends_at_program: bool) -> Iterator[str]:
    """Yields the options among a command's words; what follows the program belongs to that."""
    is_value = False
    for word in words:
        if is_value or not re.match(r"--?[a-z]", word):
            if ends_at_program and not is_value and not word.startswith(("[", "(")):
                return
            is_value = False
            continue
        option, equals, _ = word.rstrip(".,:;)").partition("=")
        yield option
        if ends_at_program and option in ("-m", "-c"):
            return
        is_value = options.get(option, False) and not equals


def main() -> int:
    """Returns the exit status."""
    commands = known()
    wrong = [
        f"{path.relative_to(ROOT)}: {one}"
        for path in documents()
        if path.name not in LEFT_OUT
        for one in wrong_commands(path.read_text(), commands)
    ]
    print("\n".join(wrong) or "all commands and options exist", file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
