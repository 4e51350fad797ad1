"""A bar that shows how far training is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


class Steps(Iterable[Any]):
    """What `progress` gives: an iterable whose `show` puts numbers beside the bar."""

    def __init__(self, items: Iterable[Any], label: str, console: Console | None) -> None:
        self._items, self._label, self._console = items, label, console
        self._shown: dict[str, Any] = {}
        self._drawn = -1.0

    def show(self, **numbers: Any) -> None:
        """Name and value of what is worth seeing now; tensors are looked at when the bar is drawn next, not before."""
        self._shown.update(numbers)

    def __iter__(self) -> Iterator[Any]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = self._console or Console(file=sys.stderr)
        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        every = (*columns, TextColumn("{task.fields[numbers]}"))
        total = len(self._items) if isinstance(self._items, Sized) else None
        with Progress(*every, console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task(self._label, total=total, numbers="")
            for item in self._items:
                yield item
                # A tensor is waited for when somebody watches, about ten times a second.
                due = not bar.disable and bar.get_time() - self._drawn >= 0.1
                if due:
                    self._drawn = bar.get_time()
                    bar.update(task, numbers=self._text())
                bar.advance(task)
            bar.update(task, numbers="" if bar.disable else self._text())

    def _text(self) -> str:
        return "  ".join(f"{name} {_written(value)}" for name, value in self._shown.items())


def _written(value: Any) -> str:
    try:
        return f"{float(value):.4g}"
    except (TypeError, ValueError):
        return str(value)


def progress(items: Iterable[Any], label: str = "training", *, console: Console | None = None) -> Steps:
    """`items`, with a bar on a terminal (standard error, or a Rich console) and nothing in a file or pipe.

    for x, y in (steps := nn.progress(data)):
        params, state, loss = step(params, state, x, y)
        steps.show(loss=loss)
    """
    return Steps(items, label, console)
