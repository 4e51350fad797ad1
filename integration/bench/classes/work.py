"""What a case of the benchmark is: one program at one shape, in Tile's words and in its peers'."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]
Value = int | str


@dataclass(frozen=True, slots=True)
class Work:
    """One program at one shape. Expressions of peers name the inputs as Tile does, and the values in `names`."""

    tile: str
    """The function's text."""
    inputs: Mapping[str, Shape]
    numpy: str = ""
    """NumPy's expression; empty where NumPy has no reasonable one."""
    torch: str = ""
    """PyTorch's expression, also compiled and through ONNX Runtime; `F` is torch.nn.functional."""
    eager: str = ""
    """PyTorch's expression uncompiled, where `torch` would build all pairs in memory, or the gradients where it has an
    operation of its own for them."""
    loop: str = ""
    """The function of peers.loops that Numba compiles; it takes the inputs in order."""
    arranged: Mapping[str, str] = field(default_factory=dict[str, str])
    """How PyTorch sees an input, as an expression; put into each memory format before the clock starts."""
    names: Mapping[str, Any] = field(default_factory=dict[str, Any])
    dtype: str = "float32"
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of inputs that have another one than `dtype`."""
    highest: Mapping[str, int] = field(default_factory=dict[str, int])
    """Bounds of integer inputs that are row numbers."""
    gradients: tuple[str, ...] = ()
    """When given, the gradients for these inputs are wanted; the last input is the cotangent."""
    operations: float = 0
    """Arithmetic of one run."""
    fused: bool = False
    """Whether two operations make one multiply-add."""
    touched: float | None = None
    """Bytes that must move, where that is not every input and every output once."""
    length: int = 1
    """Terms of the longest sum: what the tolerance grows with."""

    def dtype_of(self, name: str) -> str:
        return self.dtypes.get(name, self.dtype)

    @property
    def slots(self) -> float:
        """Arithmetic instructions, if each handled one element."""
        return self.operations / 2 if self.fused else self.operations

    @property
    def size(self) -> float:
        """What time is divided by when sizes are compared: operations, or elements where nothing is calculated."""
        return self.operations or float(self.elements)

    @property
    def elements(self) -> int:
        """Of all inputs."""
        return sum(map(product, self.inputs.values()))


@dataclass(frozen=True, slots=True)
class Program:
    """A family of cases: what it computes, open in its sizes."""

    name: str
    make: Callable[..., Work]

    def parameters(self) -> dict[str, bool]:
        """Parameter -> whether it is a number (the others are words)."""
        signature = inspect.signature(self.make, eval_str=True)
        return {name: p.annotation is int for name, p in signature.parameters.items()}

    def name_of(self, values: Mapping[str, Value]) -> str:
        """The case's name, from which `case` makes it again."""
        return f"{self.name}:{','.join(f'{k}={v}' for k, v in values.items())}"


@dataclass(frozen=True, slots=True)
class Case:
    """A program with all sizes given."""

    name: str
    program: Program
    values: Mapping[str, Value]
    work: Work


PROGRAMS: dict[str, Program] = {}


def program(make: Callable[..., Work]) -> Callable[..., Work]:
    """Register a family under its function's name, with dashes."""
    name = make.__name__.strip("_").replace("_", "-")
    PROGRAMS[name] = Program(name, make)
    return make


def instance(family: str, values: Mapping[str, Value]) -> Case:
    """The case of a family at these values."""
    found = PROGRAMS[family]
    return Case(found.name_of(values), found, values, found.make(**values))


def named(text: str) -> Case:
    """The case that a name such as ``matmul:m=128,k=768,n=3072,layout=nn`` stands for.

    Raises ValueError for an unknown program or parameter.
    """
    family, _, listed = text.partition(":")
    if family not in PROGRAMS:
        raise ValueError(f"there is no program {family!r}; there are {', '.join(PROGRAMS)}")
    numbers = PROGRAMS[family].parameters()
    pairs = [p.partition("=") for p in listed.split(",") if p]
    if unknown := [k for k, _, _ in pairs if k not in numbers]:
        raise ValueError(f"{family} has no parameter {unknown[0]!r}; it has {', '.join(numbers)}")
    return instance(family, {k: int(v) if numbers[k] else v for k, _, v in pairs})


def product(sizes: Sequence[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result
