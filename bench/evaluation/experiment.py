"""What an experiment is, and what it is given when it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rich.progress import Progress

T = TypeVar("T")

# What an experiment measured, as JSON has it.
Raw = dict[str, Any]


INCOMPLETE = "Not all of it was measured."


class Missing(Exception):
    """A tool that an experiment cannot do without is not there. The text says which, and how to get it."""


@dataclass
class Bench:
    """What an experiment is given."""

    quick: bool
    """Whether to measure just enough to see that everything works."""
    folder: Path
    """An empty folder for profiles and other files; removed afterwards."""
    progress: Progress
    most_rounds: int = 1000
    """``--rounds``: measures less often than an experiment would."""
    keep: Callable[[Raw], None] = lambda raw: None
    """Keeps raw results that are not complete yet: of a run that is ended early, they remain."""
    notes: list[str] = field(default_factory=list)
    """What was left out, and why; the page shows it."""

    def rounds(self, usual: int) -> int:
        """How often to measure: once in a quick run."""
        return 1 if self.quick else min(usual, self.most_rounds)

    def track(self, items: Iterable[T], what: str) -> Iterator[T]:
        """Yields the items, and shows how many are done."""
        those = list(items)
        task = self.progress.add_task(what, total=len(those))
        for item in those:
            self.progress.update(task, description=f"{what} [dim]{_name(item)}")
            yield item
            self.progress.advance(task)
        self.progress.remove_task(task)

    def note(self, text: str) -> None:
        """Keeps a sentence for the page."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True)
class Experiment:
    """An entry of the runner."""

    name: str
    """Of its files, and for ``--only``."""
    title: str
    measure: Callable[[Bench], Raw]
    """Measures, and returns the raw results. Raises ``Missing``."""
    page: Callable[[Raw], Sequence[str]]
    """The lines of Markdown that show raw results, without the heading."""
    plots: Callable[[Raw], dict[str, str]] = lambda raw: {}
    """SVG pictures by the name of their file."""


def _name(item: object) -> str:
    if isinstance(item, tuple):
        return " ".join(map(_name, item))
    return str(getattr(item, "name", item))
