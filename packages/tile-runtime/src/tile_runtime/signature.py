"""The names and types of a function, apart from how it is run."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from tile_ir.diagnostics import Span
    from tile_ir.program.nodes import Program, TensorType


class Signature:
    """What callers and evaluators know of a function: its names, what is bound already, and its typed program."""

    name: str
    inputs: tuple[str, ...]
    """Input names in header order."""
    outputs: tuple[str, ...]
    """Output names in header order."""
    bound: Mapping[str, Any] = {}
    """Inputs that are filled in already (tensors of a composition)."""
    updates: tuple[tuple[str, str], ...] = ()
    """(input, output) pairs: after each call the bound input tensor holds that output."""
    dynamic: tuple[str, ...] = ()
    """Inputs whose first dimension, one and the same, may be of any size without compiling again."""
    key: Hashable
    """Equal for functions that compile to the same code; never keeps tensors alive."""

    @property
    def written(self) -> str | None:
        """A text that, with the types of the inputs, decides what `bind` gives, in other processes too; None for no such."""
        return None

    @property
    def spans(self) -> Mapping[str, Span]:
        """Where inputs are declared, for error messages."""
        return {}

    @property
    def digest(self) -> str | None:
        """That of the typed program (`typed.program_digest`), where it is known without making the program."""
        return None

    @property
    def origins(self) -> Mapping[int, Span]:
        """Where operations of the program that have labels come from, by number, where its digest is known."""
        return {}

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        """The typed program for inputs of these types; TileError when they do not fit."""
        raise NotImplementedError

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names a caller passes, in order."""
        return tuple(n for n in self.inputs if n not in self.bound) if self.bound else self.inputs

    def filled(self, args: Sequence[Any]) -> Sequence[Any]:
        """Values of all inputs, in order: `args`, as many as there are `arguments`, and what is bound."""
        if not self.bound:
            return args
        rest = iter(args)
        return [self.bound[n] if n in self.bound else next(rest) for n in self.inputs]

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the outputs a call returns, in order."""
        updated = {out for _, out in self.updates}
        return tuple(n for n in self.outputs if n not in updated) if updated else self.outputs

    def __repr__(self) -> str:
        return f"<tile {type(self).__name__} {self.name}({', '.join(self.inputs)}) -> ({', '.join(self.outputs)})>"


@runtime_checkable
class Family(Protocol):
    """Functions by one name, one for each form of arguments: what a Python function of arrays is."""

    def stated(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Signature, Sequence[Any]]:
        """The function for arguments like these, and the arrays that it takes for them."""
        ...
