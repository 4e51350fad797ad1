"""The random generator as integer operations over an ordered index.

2048 streams step independently; element e comes from step ``e // 2048`` of stream ``e % 2048``. The streams
are free, the steps of one are ordered and hand the state on in the state output.
"""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.program.nodes import Prng
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Order

from tile_opt.translate.build import Kernel, Scalar, Stage
from tile_opt.translate.context import Context
from tile_opt.translate.reshape import copy_reshaped

STREAMS = 2048
_COMPONENTS = ((0xFFFFFFFE, 12, 13, 19), (0xFFFFFFF8, 4, 2, 25), (0xFFFFFFF0, 17, 3, 11))
"""Per component: mask and shift of the kept part, left and right shift of the mixed part."""


def prng(context: Context, op: Prng) -> None:
    """``value`` uniform float32 in [0, 1], ``state`` the streams' states after the last draw.

    The streams that draw in a last, partial round do so in a kernel of their own: the rounds before need no
    bounds check, which would keep them from vector lanes.
    """
    drawing = _Drawing.of(context, op)
    rounds, rest = divmod(op.type.size, STREAMS)
    seed, state = context.buffers[op.seed], context.buffers[op.state]
    if rounds:
        after = context.temporary(f"{op.state}_rounds", DType.UINT32, (len(_COMPONENTS), STREAMS)) if rest else state
        drawing.rounds(seed, after, rounds)
        seed = after
    if rest or not rounds:
        drawing.rest(seed, state, rounds, rest)
    drawing.finish()


@frozen
class _Drawing:
    """One operation's kernels; `target` is a buffer of `shape` with at most one dimension that is not 1."""

    context: Context
    op: Prng
    text: str
    target: str
    shape: tuple[int, ...]

    @staticmethod
    def of(context: Context, op: Prng) -> _Drawing:
        text = f"{op.value}, {op.state} = prng_step({op.seed}, {', '.join(map(str, op.type.shape))})"
        shape = op.type.shape
        if sum(size != 1 for size in shape) <= 1 or not op.type.size:
            return _Drawing(context, op, text, context.buffers[op.value], shape)
        flat = (op.type.size,)
        return _Drawing(context, op, text, context.temporary(f"{op.value}_flat", DType.FLOAT32, flat), flat)

    def rounds(self, source: str, state: str, count: int) -> None:
        """`count` draws of every stream, whose states `source` gives and `state` gets."""
        kernel = self._kernel()
        _copy_states(kernel, "seed", source, state, 0)
        stage = kernel.stage("draw", [("s", STREAMS), ("k", count, Order.ORDERED)])
        self._draw(stage, state, state, Affine.of({"s": 1, "k": STREAMS if count > 1 else 0}))
        self.context.add(kernel)

    def rest(self, source: str, state: str, after: int, count: int) -> None:
        """One more draw of the first `count` streams; the others' states stay."""
        kernel = self._kernel()
        _copy_states(kernel, "stay", source, state, count)
        if count:
            stage = kernel.stage("draw", [("s", count)])
            self._draw(stage, source, state, Affine.var("s") + after * STREAMS)
        self.context.add(kernel)

    def _kernel(self) -> Kernel:
        return self.context.kernel(self.text, ("prng",), self.op.origin)

    def _draw(self, stage: Stage, source: str, state: str, element: Affine) -> None:
        value = _step(stage, source, state).cast(DType.FLOAT32) / 4294967296.0
        stage.store(self.target, tuple(element if size != 1 else Affine() for size in self.shape), value)

    def finish(self) -> None:
        """The values in the shape that was asked for."""
        target, shape = self.context.buffers[self.op.value], self.op.type.shape
        if self.target != target:
            copy_reshaped(self.context, (self.target, self.shape), (target, shape), self.text, self.op.origin)


def _copy_states(kernel: Kernel, name: str, source: str, target: str, first: int) -> None:
    """A stage that copies the states of the streams from number `first` on."""
    stage = kernel.stage(name, [("c", len(_COMPONENTS)), ("s", STREAMS - first)])
    cell = (Affine.var("c"), Affine.var("s") + first)
    stage.store(target, cell, stage.load(source, cell))


def _step(stage: Stage, source: str, state: str) -> Scalar:
    """Advance the three components of stream s from `source` to `state`; gives their exclusive or."""
    parts: list[Scalar] = []
    for row, component in enumerate(_COMPONENTS):
        cell = (Affine((), row), Affine.var("s"))
        new = _advance(stage.load(source, cell), component)
        stage.store(state, cell, new)
        parts.append(new)
    return parts[0] ^ parts[1] ^ parts[2]


def _advance(old: Scalar, component: Sequence[int]) -> Scalar:
    mask, keep, left, right = (old.stage.const(value, old.dtype) for value in component)
    return (old & mask) << keep ^ (old << left ^ old) >> right
