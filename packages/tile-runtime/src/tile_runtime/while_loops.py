"""Loops that go on as long as a condition holds: `while_loop`.

A device program has a number of rounds. So some rounds at a time run as one program, in which a state whose condition no
longer holds stays as it is, and the host looks at the condition in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.frozen import frozen

from tile_runtime.above import functions
from tile_runtime.arguments import input_type
from tile_runtime.checks import described
from tile_runtime.loops import checked_rounds, repeat
from tile_runtime.signature import Signature
from tile_runtime.symbols import Symbol
from tile_runtime.tensor import Tensor, asarray
from tile_runtime.trees import Structure, flatten, paths, unflatten

if TYPE_CHECKING:
    from tile_hal.interfaces import Device

AT_A_TIME = 16
"""Rounds of a program: a look at the condition takes as long as some rounds on a small state."""
SMALL = 1 << 18
"""Bytes of a state from which on a round takes so long that each is a program."""


def while_loop(
    cond: Callable[..., Any],
    step: Callable[..., Any],
    init: Any,
    *,
    max_steps: int | None = None,
    device: Device | str | None = None,
) -> Any:
    """``state = init; while cond(state): state = step(state)`` on the device, at most `max_steps` times.

    `init` is an array, a Tensor or a symbol, or a tuple, list or dict of them; `step` makes another state of the same form, shapes
    and dtypes, and `cond` one truth value. Both are Python functions of the state's symbols, or Tile functions of its
    leaves. They are traced once; up to 15 rounds are computed behind the last one and dropped, so both must be harmless then.

    Among symbols (in `tile.jit`, `tile.compose`, under gradients) `max_steps` is needed: so many rounds are run, and those after
    the last one leave the state as it is. Derivatives go through the rounds that count. Otherwise the result is computed
    now, on `device`: Tensors where one is given, else arrays.

    TileTypeError (TILE-E530) for a condition that is no single bool, a step that changes the state's form, or a missing `max_steps`.
    """
    leaves, form = flatten(init)
    most = None if max_steps is None else checked_rounds("max_steps", max_steps)
    loop = _While(cond, step, form)
    if any(isinstance(leaf, Symbol) for leaf in leaves):
        if most is None:
            raise _wrong("a while loop on symbols needs max_steps", "a program has a number of rounds: max_steps=100")
        return unflatten(form, loop.rounds(leaves, most))
    given = any(isinstance(leaf, Tensor) for leaf in leaves)
    found = loop.run([asarray(leaf, device) for leaf in leaves], most)
    return unflatten(form, found if given else [t.numpy() for t in found])


@frozen
class _While:
    """A loop that a user asks for."""

    cond: Callable[..., Any]
    step: Callable[..., Any]
    form: Structure
    """Of the state."""

    def run(self, state: list[Tensor], most: int | None) -> list[Tensor]:
        """The last state: some rounds at a time, until the condition does not hold."""
        count = 1 if sum(t.nbytes for t in state) >= SMALL else AT_A_TIME
        some = self._advance(count)
        done = 0
        while most is None or done < most:
            left = count if most is None else min(count, most - done)
            *state, goes_on = (some if left == count else self._advance(left))(*state)
            done += left
            if not goes_on.item():
                break
        return state

    def _advance(self, count: int) -> Callable[..., tuple[Tensor, ...]]:
        """From the leaves of a state to those after `count` rounds, and whether it goes on."""
        from tile_runtime.jit import jit

        def advance(*leaves: Any) -> tuple[Any, ...]:
            after = self.rounds(list(leaves), count)
            return (*after, self._holds(after))

        return cast("Callable[..., tuple[Tensor, ...]]", jit(advance))

    def rounds(self, state: list[Any], count: int) -> list[Any]:
        """The leaves after so many rounds, of which those do nothing before which the condition does not hold."""
        found = repeat(self._round, tuple(state), count)
        return list(cast("tuple[Any, ...]", found))

    def _round(self, state: tuple[Any, ...]) -> tuple[Any, ...]:
        goes_on = self._holds(list(state))
        after, form = flatten(self._called(self.step, list(state)))
        if form != self.form:
            raise _wrong(f"the step makes {form} of {self.form}", "the state keeps its form in every round")
        for path, new, old in zip(paths(form, "state"), after, state, strict=True):
            have, want = input_type(path, new), input_type(path, old)
            if have != want:
                raise _wrong(
                    f"{path} is {want} before a round and {have} after it",
                    f"convert it in the step, or start from {have}",
                )
        return tuple(functions.module.where(goes_on, new, old) for new, old in zip(after, state, strict=True))

    def _holds(self, state: list[Any]) -> Any:
        """The condition, as a symbol."""
        found = self._called(self.cond, state)
        if not isinstance(found, Symbol):
            message = f"the condition of a while loop is {described(found)} whatever the state is"
            raise _wrong(message, "compute it of the state, such as lambda x: (x * x).sum() > 1e-6")
        if found.shape or input_type("cond", found).dtype.value != "bool":
            hint = "such as (x > 0).any(), or the comparison of a sum"
            raise _wrong(f"the condition of a while loop is {input_type('cond', found)}, not one bool", hint)
        return found

    def _called(self, function: Callable[..., Any], leaves: list[Any]) -> Any:
        if not isinstance(function, Signature):
            return function(unflatten(self.form, leaves))
        found: Any = cast("Callable[..., Any]", function)(*leaves)
        return unflatten(self.form, _each(found)) if function is self.step else found


def _each(found: Any) -> list[Any]:
    """The results of a function of Tile text."""
    return list(cast("tuple[Any, ...]", found)) if isinstance(found, tuple) else [found]


def _wrong(message: str, hint: str) -> TileTypeError:
    return TileTypeError(Diagnostic("TILE-E530", message, hint=hint))
