"""Local arrays whose elements do not lie as their strides say: rows cut into panels, and swizzled."""

from __future__ import annotations

from tile_ir.frozen import frozen
from tile_ir.semtree.nodes import Binary, Expr
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Refinement, Swizzle

from tile_opt.lowering.builder import Builder
from tile_opt.lowering.forms import Scaled, bounds


@frozen
class Arrangement:
    """Where the element at an offset by strides lies; all numbers are powers of two, but those of rows and of panels in them."""

    version: int
    """Elements from one version to the next."""
    rows: int
    pitch: int
    """Rows, and elements in each."""
    panel: int
    """Elements of a row that stay together."""
    swizzle: Swizzle | None

    @property
    def panels(self) -> int:
        """Elements from one panel to the next; 0 where there is one."""
        return self.rows * self.panel if self.panel < self.pitch else 0

    @property
    def together(self) -> int:
        """Elements that stay side by side."""
        return 1 << self.swizzle.base if self.swizzle is not None else self.panel

    def index(self, builder: Builder, offset: Affine, quasi: tuple[Scaled, ...], *, swizzled: bool = True) -> Expr:
        """The place of the element at ``offset + quasi``; without the swizzle where rows begin at 0 modulo its period."""
        (inside, moved), (whole, steps) = self._parted(offset, quasi)
        periods = inside.const // self._period(self.pitch)  # one sum serves the places behind all of them
        turned = self.swizzle is not None and swizzled
        at, chunks = self._in_panels(builder, inside - periods * self._period(self.pitch), moved, turned=turned)
        if self.swizzle is not None and turned:
            _, turn = _bits(builder, _bits(builder, at, 1 << self.swizzle.shift)[0], 1 << self.swizzle.bits)
            at = _op(builder, "bit_xor", at, _op(builder, "mul", turn, builder.literal(1 << self.swizzle.base)))
        if chunks:  # their bits are 0 so far: what is turned is the same for all of them
            at = _op(builder, "bit_xor", at, builder.literal(chunks))
        behind = whole.const + periods * self._period(self.panel)
        rest = whole - whole.const, steps
        at = _op(builder, "add", at, builder.atom(*rest)) if rest != (Affine(), ()) else at
        # Last, since addressing modes absorb it.
        return Binary("add", at, builder.literal(behind), at.type) if behind else at

    def _period(self, pitch: int) -> int:
        """Elements of as many rows as the swizzle tells apart: behind them it starts anew."""
        return pitch << (self.swizzle.bits if self.swizzle is not None else 0)

    def _in_panels(
        self, builder: Builder, offset: Affine, quasi: tuple[Scaled, ...], *, turned: bool
    ) -> tuple[Expr, int]:
        """The place without the swizzle; where that is to follow, but for elements of its row that are whole chunks."""
        rows = Affine.of([(n, c) for n, c in offset.terms if c % self.pitch == 0])
        rows = rows + offset.const // self.pitch * self.pitch
        down = tuple(q for q in quasi if q[0] % self.pitch == 0)
        column, across = offset - rows, tuple(q for q in quasi if q not in down)
        low, high = bounds(column, across, builder.ranges)
        if low < 0 or high >= self.pitch or low // self.panel != high // self.panel:
            return self._place(builder, offset, quasi), 0
        narrower = Affine.of([(n, c // self.pitch * self.panel) for n, c in rows.terms])
        narrower = narrower + rows.const // self.pitch * self.panel
        panel = low // self.panel
        chunk = low % self.panel // self.together
        chunks = chunk * self.together if turned and low // self.together == high // self.together else 0
        at = narrower + column + (panel * (self.panels - self.panel) - chunks)
        return builder.atom(at, (*((s // self.pitch * self.panel, q) for s, q in down), *across)), chunks

    def _place(self, builder: Builder, offset: Affine, quasi: tuple[Scaled, ...]) -> Expr:
        """The same, wherever the element is in its row."""
        at: Expr = builder.atom(offset, quasi)
        if self.panels:
            row, column = _divided(builder, at, self.pitch)
            panel, rest = _bits(builder, column, self.panel)
            at = _op(builder, "add", _op(builder, "mul", row, builder.literal(self.panel)), rest)
            at = _op(builder, "add", at, _op(builder, "mul", panel, builder.literal(self.panels)))
        return at

    def _parted(
        self, offset: Affine, quasi: tuple[Scaled, ...]
    ) -> tuple[tuple[Affine, tuple[Scaled, ...]], tuple[Affine, tuple[Scaled, ...]]]:
        """What moves inside a version, and what moves by whole ones: that is the same for all work items."""
        whole = Affine.of([(n, c) for n, c in offset.terms if c % self.version == 0])
        whole = whole + (offset.const // self.version * self.version)
        steps = tuple(q for q in quasi if q[0] % self.version == 0)
        return (offset - whole, tuple(q for q in quasi if q not in steps)), (whole, steps)


def _divided(builder: Builder, value: Expr, size: int) -> tuple[Expr, Expr]:
    """Quotient and remainder of what is not negative."""
    if size & (size - 1) == 0:
        return _bits(builder, value, size)
    return _op(builder, "div", value, builder.literal(size)), _op(builder, "mod", value, builder.literal(size))


def _bits(builder: Builder, value: Expr, size: int) -> tuple[Expr, Expr]:
    """Quotient and remainder of what is not negative by a power of two."""
    bits = builder.literal(size.bit_length() - 1)
    return _op(builder, "bit_right", value, bits), _op(builder, "bit_and", value, builder.literal(size - 1))


def _op(builder: Builder, op: str, left: Expr, right: Expr) -> Expr:
    return builder.pure(op, (left, right), Binary(op, left, right, left.type), "n")


def arrangement(ref: Refinement, version: int) -> Arrangement | None:
    """That of an allocation whose versions are so many elements apart; None where strides say all."""
    layout, extent = ref.type.layout, ref.type.extent
    if layout.swizzle is None and not layout.panel:
        return None
    pitch = min((s for s in layout.strides if s > 1), default=extent)
    return Arrangement(version or extent, -(-extent // pitch), pitch, layout.panel or pitch, layout.swizzle)
