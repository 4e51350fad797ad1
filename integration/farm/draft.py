"""A Tile function while it is being drawn: its inputs, its values so far, and the statements that make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType

SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 8, 11, 13, 16, 17, 31, 32, 33, 64)
"""None, one, powers of two, primes, and what stands beside a vector register."""
MOST = 2048
"""Elements of a tensor."""


@dataclass(slots=True)
class Draft:
    """What statements are drawn into; the first sizes drawn are used again, so that tensors fit each other."""

    random: Random
    dtype: DType
    common: tuple[int, ...]
    inputs: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    values: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    """Inputs too."""
    statements: list[str] = field(default_factory=list[str])
    unused: list[str] = field(default_factory=list[str])
    """Results that no statement reads yet: outputs, if it stays so."""

    def size(self) -> int:
        return self.random.choice(self.common)

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """Common sizes, as many as `rank` says, of not too many elements."""
        sizes: list[int] = []
        for _ in range(self.random.choice((1, 2, 2, 2, 3, 3, 4, 0)) if rank is None else rank):
            size = self.size()
            sizes.append(size if size * product(sizes) <= MOST else 1)
        return tuple(sizes)

    def input(self, shape: Sequence[int], dtype: DType | None = None) -> str:
        """A new input."""
        name = "ABCDEFGHIJKLMNOPQRSTUVW"[len(self.inputs)]
        self.inputs[name] = self.values[name] = TensorType(dtype or self.dtype, tuple(shape))
        return name

    def define(self, text: str, dtype: DType, shape: Sequence[int]) -> str:
        """A new value: `text` is its statement, with {0} where its name stands."""
        name = f"X{len(self.statements)}"
        self.statements.append(text.format(name))
        self.values[name] = TensorType(dtype, tuple(shape))
        self.unused.append(name)
        return name

    def use(self, name: str) -> str:
        if name in self.unused:
            self.unused.remove(name)
        return name

    def any(self, rank: int | None = None) -> str:
        """A value of the usual dtype, the newest ones first; a new input if there is none of that rank."""
        fitting = [n for n, t in self.values.items() if t.dtype is self.dtype and rank in (None, len(t.shape))]
        if not fitting or (len(self.inputs) < 4 and self.random.random() < 0.3):
            return self.input(self.shape(rank))
        return self.use(self.random.choice(fitting[-3:] if self.random.random() < 0.7 else fitting))

    def beside(self, shape: Sequence[int]) -> str:
        """A value that broadcasts to `shape`."""
        fitting = [n for n, t in self.values.items() if t.dtype is self.dtype and broadcasts(t.shape, shape)]
        if not fitting or (len(self.inputs) < 5 and self.random.random() < 0.3):
            part = list(shape[self.random.choice((0, 0, 0, 1)) :])
            return self.input([1 if self.random.random() < 0.15 else n for n in part])
        return self.use(self.random.choice(fitting))

    def spelled(self, size: int) -> str:
        """A size as text: a dimension of an input that has it, most often, so that sizes can be changed in one place."""
        names = [f"{n}{d}" for n, t in self.inputs.items() for d, have in enumerate(t.shape) if have == size]
        return self.random.choice(names) if names else str(size)

    def text(self, outputs: Sequence[str]) -> str:
        header = ", ".join(f"{n}[{', '.join(f'{n}{d}' for d in range(len(t.shape)))}]" for n, t in self.inputs.items())
        body = "".join(f"    {s}\n" for s in self.statements)
        return f"function ({header}) -> ({', '.join(outputs)}) {{\n{body}}}\n"


def product(sizes: Sequence[int]) -> int:
    found = 1
    for size in sizes:
        found *= max(size, 1)
    return found


def broadcasts(part: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether `part` becomes `shape` beside a tensor of that shape."""
    if len(part) > len(shape):
        return False
    tail = shape[len(shape) - len(part) :]
    return all(have in (1, want) for have, want in zip(part, tail, strict=True))
