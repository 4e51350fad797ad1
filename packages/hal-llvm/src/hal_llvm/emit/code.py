"""The text of one LLVM function while it grows, and what a module needs besides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tile_ir.frozen import frozen

from hal_llvm.emit.types import held, spread, suffix

if TYPE_CHECKING:
    from hal_llvm.dots import Form

Operand = tuple[str, str]
"""An LLVM type and a value of it."""


@frozen
class Machine:
    """What emission must know of the processor; it never changes what a kernel computes, but for `fma`."""

    vector_bytes: int = 16
    fma: bool = True
    """The math functions may use fused multiply-add (Fma nodes always fuse)."""
    native_minmax: bool = False
    """llvm.maximum is one instruction (AArch64)."""
    native_saturation: bool = False
    """Conversions of float vectors to integers saturate (AArch64)."""
    rounds_bfloat16: bool = False
    """One instruction rounds a vector of float32 to bfloat16 (AVX512-BF16), but for subnormal numbers."""
    dots: Mapping[str, tuple[Form, ...]] = field(default_factory=dict[str, "tuple[Form, ...]"])
    """By operation, the instructions for dot products of words, narrow ones first."""


@dataclass(slots=True)
class Module:
    """Declarations, helper functions and loop metadata shared by the functions of a module."""

    machine: Machine = field(default_factory=Machine)
    declarations: dict[str, str] = field(default_factory=dict[str, str])
    helpers: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    functions: list[str] = field(default_factory=list[str])
    loops: int = 0

    def helper(self, name: str, build: Callable[[], str]) -> None:
        """Add internal function `name` once; `build` gives its text."""
        if name not in self.helpers:
            self.helpers[name] = None
            self.helpers[name] = build()

    def loop_id(self) -> str:
        """A fresh loop metadata node that forbids unrolling."""
        self.loops += 1
        return f"!{self.loops + 1}"

    def text(self) -> str:
        """The module's IR."""
        metadata = ["!0 = !{i32 1}", '!1 = !{!"llvm.loop.unroll.disable"}']
        metadata += [f"!{n + 2} = distinct !{{!{n + 2}, !1}}" for n in range(self.loops)]
        bodies = [text for text in self.helpers.values() if text]
        return "\n".join([*self.declarations.values(), *bodies, *self.functions, *metadata, ""])


@dataclass(slots=True)
class Code:
    """Instructions of one function, in order, with fresh names."""

    module: Module
    lines: list[str] = field(default_factory=list[str])
    entry: list[str] = field(default_factory=list[str])
    """Allocas, which belong to the entry block."""
    label: str = "entry"
    """Name of the basic block being filled."""
    streamed: set[str] = field(default_factory=set[str])
    """Pointers past whose buffers' caches it stores."""
    unwritten: Mapping[str, int] = field(default_factory=dict[str, int])
    """Elements of buffers that nothing writes meanwhile, by their pointers."""
    normal: set[str] = field(default_factory=set[str])
    """Values of which no lane is subnormal."""
    words: dict[str, str] = field(default_factory=dict[str, str])
    """Vectors of int32, by what they are as int64."""
    picked_words: set[str] = field(default_factory=set[str])
    """Lanes of these, as int64."""
    _count: int = 0

    def fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def emit(self, line: str) -> None:
        self.lines.append("  " + line)

    def let(self, text: str) -> str:
        """Append an instruction and give its result."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def block(self, label: str) -> None:
        """Begin basic block `label`."""
        self.lines.append(f"{label}:")
        self.label = label

    def reserve(self) -> int:
        """Keep a place for a line that is known later (`fill`)."""
        self.lines.append("")
        return len(self.lines) - 1

    def fill(self, place: int, line: str) -> None:
        self.lines[place] = "  " + line

    def move(self, numbers: Sequence[int], place: int) -> None:
        """Put lines into a place that was kept before them."""
        moved = [self.lines[n] for n in numbers]
        for n in numbers:
            self.lines[n] = ""
        self.lines[place] = "\n".join(moved)

    def jump(self, label: str) -> None:
        self.emit(f"br label %{label}")

    def branch(self, cond: str, then: str, other: str, seldom: bool = False) -> None:
        """Go to `then` or to `other`, which is `seldom` the case."""
        weights = ', !prof !{!"branch_weights", i32 2000, i32 1}' if seldom else ""
        self.emit(f"br i1 {cond}, label %{then}, label %{other}{weights}")

    def alloca(self, llvm_type: str, align: int = 0, count: int = 0) -> str:
        """A stack slot in the entry block."""
        name = self.fresh("%m")
        number = f", i64 {count}" if count else ""
        aligned = f", align {align}" if align else ""
        self.entry.append(f"  {name} = alloca {llvm_type}{number}{aligned}")
        return name

    def declare(self, name: str, result: str, params: Sequence[str]) -> None:
        self.module.declarations.setdefault(name, f"declare {result} @{name}({', '.join(params)})")

    def call(self, name: str, result: str, *args: Operand) -> str:
        """Call an external function or intrinsic, declaring it."""
        self.declare(name, result, [t for t, _ in args])
        return self.call_local(name, result, *args)

    def call_local(self, name: str, result: str, *args: Operand) -> str:
        """Call a function defined in this module; "" when it returns nothing."""
        text = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in args)})"
        if result == "void":
            self.emit(text)
            return ""
        return self.let(text)

    def intrinsic(self, name: str, llvm_type: str, *args: str) -> str:
        """Call an intrinsic overloaded on one type that is also that of its operands and result."""
        return self.call(f"{name}.{suffix(llvm_type)}", llvm_type, *((llvm_type, a) for a in args))

    def splat(self, element: str, lanes: int, value: str) -> str:
        """Put a scalar into every lane."""
        if lanes == 1:
            return value
        vector = spread(element, lanes)
        first = self.let(f"insertelement {vector} poison, {element} {value}, i64 0")
        return self.let(f"shufflevector {vector} {first}, {vector} poison, {spread('i32', lanes)} zeroinitializer")

    def picked(self, left: Operand, right: str, picks: Sequence[int]) -> str:
        """A register of some lanes of two vectors of one type, numbered on from the left one's."""
        vector, value = left
        count = held(len(picks))
        numbers = ", ".join([*(f"i32 {lane}" for lane in picks), *["i32 poison"] * (count - len(picks))])
        return self.let(f"shufflevector {vector} {value}, {vector} {right}, <{count} x i32> <{numbers}>")

    def body(self) -> str:
        """All instructions, allocas first."""
        return "\n".join(["entry:", *self.entry, *self.lines])
