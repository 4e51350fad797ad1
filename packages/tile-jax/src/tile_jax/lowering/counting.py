"""Loops whose rounds are known before they run: a number that the body moves by a constant, and a test against a bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tile_runtime.ops.values import Value, is_known

from tile_jax.lowering.mlir import Block, Node, Operation, ir
from tile_jax.lowering.tensors import constant


@dataclass(frozen=True, slots=True)
class Counter:
    """What counts the rounds."""

    place: int
    """Which of the carried values."""
    first: int
    step: int
    trips: int
    fixed: frozenset[int]
    """Carried values that no round changes."""


_FLIPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}
_TRIPS: dict[str, Callable[[int, int, int], int]] = {
    "LT": lambda first, bound, step: -(-(bound - first) // step) if step > 0 else -1,
    "LE": lambda first, bound, step: (bound - first) // step + 1 if step > 0 else -1,
    "GT": lambda first, bound, step: -(-(first - bound) // -step) if step < 0 else -1,
    "GE": lambda first, bound, step: (first - bound) // -step + 1 if step < 0 else -1,
    "NE": lambda first, bound, step: (bound - first) // step if step and (bound - first) % step == 0 else -1,
}
"""Rounds from a number, a bound and a step; negative where the loop does not end."""


def counter(test: Block, body: Block, values: Sequence[Value]) -> Counter | None:
    """What counts the rounds of a loop; None where that is not seen, or where only data knows."""
    after = returned(body)
    fixed = frozenset(k for k, value in enumerate(after) if value == body.arguments[k])
    compared = _defined(returned(test)[0], "stablehlo.compare")
    if compared is None:
        return None
    word = str(compared.attributes["comparison_direction"]).rstrip(">").split()[-1]
    left, right = list(compared.operands)
    for value, bound, direction in ((left, right, word), (right, left, _FLIPPED.get(word, ""))):
        found = _counter(value, bound, direction, test, body, values, fixed)
        if found is not None:
            return found
    return None


def _counter(
    value: Node, bound: Node, word: str, test: Block, body: Block, values: Sequence[Value], fixed: frozenset[int]
) -> Counter | None:
    place = _argument(value, test)
    if place is None or place in fixed or word not in _TRIPS:
        return None
    first, last = _whole(values[place]), _number(bound, test, values, fixed)
    step = _step(returned(body)[place], place, body, values, fixed)
    if first is None or last is None or step is None:
        return None
    trips = (
        max(_TRIPS[word](first, last, step), 0)
        if _TRIPS[word](first, last, step) >= 0 or _ended(word, first, last)
        else -1
    )
    return None if trips < 0 else Counter(place, first, step, trips, fixed)


def _ended(word: str, first: int, last: int) -> bool:
    """Whether the test fails at once."""
    holds = {"LT": first < last, "LE": first <= last, "GT": first > last, "GE": first >= last, "NE": first != last}
    return not holds[word]


def _step(value: Node, place: int, body: Block, values: Sequence[Value], fixed: frozenset[int]) -> int | None:
    """By what the body moves a carried number; None where it does anything else."""
    for name, sign in (("stablehlo.add", 1), ("stablehlo.subtract", -1)):
        operation = _defined(value, name)
        if operation is None:
            continue
        one, other = list(operation.operands)
        if _argument(one, body) == place:
            number = _number(other, body, values, fixed)
            return None if number is None else sign * number
        if sign > 0 and _argument(other, body) == place:
            return _number(one, body, values, fixed)
    return None


def _number(value: Node, block: Block, values: Sequence[Value], fixed: frozenset[int]) -> int | None:
    """An integer that is a constant, or that is carried and never changes."""
    place = _argument(value, block)
    if place is not None:
        return _whole(values[place]) if place in fixed else None
    operation = _defined(value, "stablehlo.constant")
    return None if operation is None else _whole(constant(operation.attributes["value"]))


def _whole(value: Value) -> int | None:
    return int(value) if is_known(value) and value.ndim == 0 and value.dtype.kind in "iu" else None


def _argument(value: Node, block: Block) -> int | None:
    return value.arg_number if isinstance(value, ir.BlockArgument) and value.owner == block else None


def _defined(value: Any, name: str) -> Operation | None:
    """The operation that makes a value, if it is called so."""
    operation = value.owner if isinstance(value, ir.OpResult) else None
    return operation if operation is not None and operation.name == name else None


def returned(block: Block) -> list[Node]:
    """The values that a block gives."""
    return list(list(block.operations)[-1].operation.operands)
