"""Loops that run on the device: `scan` and `repeat`.

The step of a loop is traced once, on symbols. What it makes of its carry and slice alone becomes the loop's body; all
else that it uses (weights, constants, what a composition computed before) is computed outside, once, and handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.frozen import frozen

from tile_runtime.arguments import input_type
from tile_runtime.checks import checked_flag, described, wrong_kind
from tile_runtime.compose import Linker
from tile_runtime.function import BaseFunction
from tile_runtime.signature import Signature
from tile_runtime.symbols import Origins, Symbol, apply
from tile_runtime.tensor import Tensor
from tile_runtime.trees import Structure, flatten, paths, unflatten
from tile_runtime.typed import program_digest

if TYPE_CHECKING:
    from tile_hal.interfaces import Device
    from tile_ir.program.nodes import Loop, Program, TensorType

MOST_ROUNDS = 2**31 - 1


def scan(
    step: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    reverse: bool = False,
    checkpoint: int = 0,
    device: Device | str | None = None,
) -> tuple[Any, Any]:
    """Run `step` once for each row of `xs`, as one program on the device: ``(carry, ys)``.

    ``step(carry, x) -> (carry, y)`` is a Python function of symbols, or a Tile function whose inputs are the carry's
    leaves and then the row's, and whose outputs are the carry's and then the results'. `init` is the first carry and
    `xs` what is cut along axis 0: arrays, Tensors or symbols, alone or in tuples, lists and dicts. The carry keeps its
    shapes and dtypes. Without `xs`, `length` says how many rounds there are, and a Python step gets None for `x`.

    `ys` has what the rounds gave, stacked along axis 0. With `reverse` the last row comes first, in `xs` and in `ys`.
    For gradients the carry of every round is kept, or with ``checkpoint=k`` that of every k-th round, and the rounds
    between are computed again. Among symbols the result is symbols; otherwise it is computed now, on `device`.

    TileTypeError (TILE-E530) where the step's results, lengths or counts do not fit.
    """
    leaves, structure = flatten(xs)
    count = _count(leaves, structure, length)
    carry, carry_form = flatten(init)
    rounds = _Rounds(step, "scan", count, checked_flag("reverse", reverse), _checkpoint(checkpoint))
    found, form = rounds.run(carry, carry_form, leaves, structure, device)
    return unflatten(carry_form, found[: len(carry)]), unflatten(form, found[len(carry) :])


def repeat(
    step: Callable[..., Any], init: Any, n: int, *, checkpoint: int = 0, device: Device | str | None = None
) -> Any:
    """``step(step(… step(init)))``, `n` times, as one program on the device.

    `step` is a Python function of symbols, or a Tile function whose inputs and outputs are the leaves of the carry.
    The rest as in `scan`.
    """
    carry, form = flatten(init)
    rounds = _Rounds(step, "repeat", checked_rounds("n", n), False, _checkpoint(checkpoint))
    found, _ = rounds.run(carry, form, [], Structure(type(None)), device)
    return unflatten(form, found)


def _loop_error(message: str, hint: str | None = None) -> TileTypeError:
    return TileTypeError(Diagnostic("TILE-E530", message, hint=hint))


# --- how many rounds -------------------------------------------------------------------------------------


def checked_rounds(name: str, value: object) -> int:
    """`value`, an argument called `name`, as a number of rounds; TileTypeError for what is none."""
    if isinstance(value, (Symbol, Tensor)):
        hint = (
            "the program is compiled for a number of rounds: pass an integer, or use tile.while_loop(cond, step, init)"
        )
        raise _loop_error(f"{name} is {described(value)}: how often a loop goes round is known before it runs", hint)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise wrong_kind(f"{name} is a number of rounds", value, f"such as {name}=100")
    number = int(cast("int", value))
    if not 0 <= number <= MOST_ROUNDS:
        raise _loop_error(f"{name} is {number}", f"a loop has from 0 to {MOST_ROUNDS} rounds")
    return number


def _checkpoint(value: Any) -> int:
    return checked_rounds("checkpoint", value)


def _count(leaves: Sequence[Any], structure: Structure, length: int | None) -> int:
    if not leaves and length is None:
        raise _loop_error("a scan without xs needs a length", "such as length=100")
    wanted = None if length is None else checked_rounds("length", length)
    rows = dict(zip(paths(structure, "xs"), (_rows(leaf) for leaf in leaves), strict=True))
    scalars = [path for path, count in rows.items() if count is None]
    if scalars:
        raise _loop_error(f"{scalars[0]} has no axis to go along", "xs are cut along axis 0; close over what is the same in all rounds")  # fmt: skip
    counts = {path: int(count) for path, count in rows.items() if count is not None}
    if wanted is not None:
        counts["length"] = wanted
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{path}: {count}" for path, count in counts.items())
        raise _loop_error(f"the rounds of a scan are as many as the rows of each of xs, and these differ: {told}")
    return next(iter(counts.values()))


def _rows(leaf: Any) -> int | None:
    shape = input_type("xs", leaf).shape
    return shape[0] if shape else None


# --- tracing ----------------------------------------------------------------------------------------------


@frozen
class _Rounds:
    """A loop that a user asks for."""

    step: Callable[..., Any]
    kind: str
    """"scan" or "repeat"."""
    count: int
    reverse: bool
    checkpoint: int

    def run(
        self, carry: list[Any], form: Structure, xs: list[Any], xs_form: Structure, device: Device | str | None
    ) -> tuple[list[Any], Structure]:
        """The carry's leaves after the last round, then those of the stacked results, and these results' structure."""
        if not callable(self.step):
            raise wrong_kind(
                "the step of a loop is a function", self.step, "a Python function of symbols, or a tile.Function"
            )
        start = [
            _place(f"Carry{k}", input_type(p, v))
            for k, (p, v) in enumerate(zip(paths(form, "init"), carry, strict=True))
        ]
        rows = [_place(f"X{k}", _row(input_type("xs", v))) for k, v in enumerate(xs)]
        after, made, made_form = self._step(start, form, rows, xs_form)
        self._check_carry(start, after, form)
        linker = Linker((*start, *rows), Origins((*start, *rows)).outside)
        values = [linker.value(s) for s in (*after, *made)]
        body = linker.program(tuple((f"R{k}", value) for k, value in enumerate(values)))
        given = [*carry, *xs, *linker.captured.values()]
        function = LoopFunction(self.kind, _loop(self, body, len(carry), len(xs)), body)
        found = _called(function, given, device)
        return found, made_form

    def _step(
        self, start: list[Symbol], form: Structure, rows: list[Symbol], xs_form: Structure
    ) -> tuple[list[Any], list[Any], Structure]:
        """What the step makes: the leaves of the carry, and those of the rest with their structure."""
        if isinstance(self.step, Signature):
            return self._applied(self.step, start, rows)
        carry = unflatten(form, start)
        if self.kind == "repeat":
            after, made = self.step(carry), None
        else:
            both = self.step(carry, unflatten(xs_form, rows))
            if not isinstance(both, tuple) or len(both) != 2:  # pyright: ignore[reportUnknownArgumentType]
                hint = "return carry, None where a round gives nothing to stack"
                raise _loop_error(
                    f"the step of a scan returns a pair (carry, y), not {described(cast(object, both))}", hint
                )
            after, made = both  # pyright: ignore[reportUnknownVariableType]
        leaves, found = flatten(after)
        if found != form:
            raise _loop_error(
                f"the step carries on {found}, it was given {form}", "the carry keeps its form in every round"
            )
        return leaves, *flatten(made)

    def _applied(
        self, step: Signature, start: list[Symbol], rows: list[Symbol]
    ) -> tuple[list[Any], list[Any], Structure]:
        """The same of a Tile function, by position."""
        given, carried = len(start) + len(rows), len(start)
        if len(step.arguments) != given:
            takes = f"a step of {carried} carried and {len(rows)} cut takes {given}"
            raise _loop_error(f"function {step.name!r} has inputs {', '.join(step.arguments)}; {takes}", _WHOLE)
        if len(step.results) < carried or (self.kind == "repeat" and len(step.results) > carried):
            message = f"function {step.name!r} gives {', '.join(step.results)}; a step of {carried} carried gives "
            more = "at least that many" if self.kind == "scan" else "just as many"
            raise _loop_error(message + more, "what is carried on comes first, in the order of init")
        found = apply(step, dict(zip(step.inputs, step.filled([*start, *rows]), strict=True)))
        several = list(found) if isinstance(found, tuple) else [found]
        made = several[carried:]
        return several[:carried], *flatten(None if not made else made[0] if len(made) == 1 else tuple(made))

    def _check_carry(self, start: list[Symbol], after: list[Any], form: Structure) -> None:
        for path, before, later in zip(paths(form, "carry"), start, after, strict=True):
            have, want = input_type(path, later), input_type(path, before)
            if have != want:
                hint = f"convert it in the step, or start from {have}"
                raise _loop_error(f"{path} is {want} before a round and {have} after it", hint)


_WHOLE = "a Python function of symbols may call it with more: lambda carry, x: step(carry, x, weights)"


def _place(name: str, type: TensorType) -> Symbol:
    return Symbol(type.shape, type.dtype, name)


def _row(type: TensorType) -> TensorType:
    from tile_ir.program.nodes import TensorType

    return TensorType(type.dtype, type.shape[1:])


# --- the loop as a function -------------------------------------------------------------------------------


def _loop(rounds: _Rounds, body: Program, carries: int, slices: int) -> Loop:
    from tile_ir.program.nodes import Loop, TensorType

    known = body.types()
    types = [known[value] for _, value in body.outputs]
    stacked = (TensorType(t.dtype, (rounds.count, *t.shape)) for t in types[carries:])
    names = [f"I{k}" for k in range(len(body.inputs))]
    ends = (carries, carries + slices)
    return Loop(
        tuple(public for public, _ in body.outputs), (*types[:carries], *stacked), body, rounds.count,
        tuple(names[: ends[0]]), tuple(names[ends[0] : ends[1]]), tuple(names[ends[1] :]),
        rounds.reverse, rounds.checkpoint,
    )  # fmt: skip


class LoopFunction(BaseFunction):
    """A loop: from the first carry, what is cut and what all rounds use, to the last carry and the stacks."""

    def __init__(self, kind: str, loop: Loop, body: Program) -> None:
        from tile_ir.program.nodes import Param, Program, TensorType

        self.name = kind
        self.inputs = (*loop.carries, *loop.slices, *loop.captured)
        self.outputs = loop.results
        types = [p.type for p in body.inputs]
        first = len(loop.carries)
        for k in range(first, first + len(loop.slices)):
            types[k] = TensorType(types[k].dtype, (loop.count, *types[k].shape))
        params = tuple(Param(n, t) for n, t in zip(self.inputs, types, strict=True))
        self._program = Program(kind, params, (loop,), tuple((n, n) for n in loop.results))
        self.key = ("loop", program_digest(self._program))

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        return self._program


def _called(function: LoopFunction, given: list[Any], device: Device | str | None) -> list[Any]:
    if any(isinstance(v, Symbol) for v in given):
        if device is not None:
            _refuse_device()
        found = apply(function, dict(zip(function.inputs, given, strict=True)))
    elif not function.outputs:
        return []
    else:
        found = function(*given, device=device)
    return list(cast("tuple[Any, ...]", found)) if isinstance(found, tuple) else [found]


def _refuse_device() -> NoReturn:
    raise TileTypeError(Diagnostic("TILE-E505", "a loop on symbols computes nothing yet: it takes no device"))
