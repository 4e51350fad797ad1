"""What a compiled function becomes: the programs that one call of it runs, with the user's lines in their kernels."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from tile_runtime.evaluator import Evaluator
from tile_runtime.lowered import Lowered
from tile_runtime.symbols import placeholder
from torch._dynamo.utils import counters

from tile_torch import traces
from tile_torch.plans import RECORDERS
from tile_torch.program import Bindable


def explain(function: Callable[..., Any], *arguments: Any, kernels: bool = False, **named: Any) -> str:
    """The Tile programs that ``function(*arguments, **named)`` runs, which it does once; with `kernels` each kernel.

    `function` is what ``torch.compile(…, backend="tile")`` gives, or calls it: a whole training step, for instance.
    """
    with recorded() as found:
        function(*arguments, **named)
    texts = [_described(k, low, kernels) for k, low in enumerate(found, 1)]
    unkept = traces.unkept()
    return "\n".join([*texts, *([unkept] if unkept else [])]) if texts else _nothing()


def _nothing() -> str:
    """What may be why nothing runs: PyTorch runs a function that it cannot capture by itself, and says so nowhere else."""
    lines = ["It runs nothing on Tile: is it compiled with backend='tile'?"]
    for reason in counters["graph_break"]:
        what, *rest = reason.split("\n")
        why = _said(rest, "Hint: ") or _said(rest, "Explanation: ")
        lines.append(f"PyTorch left something in this process as it is: {what}. {why}".rstrip())
    return "\n".join(lines)


def _said(lines: list[str], head: str) -> str:
    """What follows the first of such heads; "" where there is none."""
    return next((line.strip().removeprefix(head) for line in lines if line.strip().startswith(head)), "")


@contextmanager
def recorded() -> Generator[list[Lowered]]:
    """The programs that run inside, in their order, as stages of compilation."""
    found: list[Lowered] = []

    def record(evaluator: Evaluator, composition: Bindable) -> None:
        types = {p.name: p.type for p in composition.program.inputs if p.name in composition.arguments}
        found.append(evaluator.lower(composition, *(placeholder(t.dtype, t.shape, n) for n, t in types.items())))

    RECORDERS.append(record)
    try:
        yield found
    finally:
        RECORDERS.remove(record)


def _described(number: int, low: Lowered, kernels: bool) -> str:
    count, program = len(low.report().kernels), low.program
    takes = ", ".join(f"{p.name} {p.type}" for p in program.inputs if not p.bound) or "nothing"
    bound = sum(p.bound for p in program.inputs)
    kept = f", with {bound} parameters that it keeps" if bound else ""
    gives = f"{len(program.outputs)} result{'s' * (len(program.outputs) > 1)}"
    head = f"{number}. A program of {count} kernel{'s' * (count > 1)}: {gives} from {takes}{kept}"
    return f"{head}\n{low.explain()}" if kernels else head
