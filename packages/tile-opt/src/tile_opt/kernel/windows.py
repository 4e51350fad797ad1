"""Which part of its producers a tile of a result needs, where every consumer reads a sliding box of what it consumes.

A loop of the last kernel is cut into tiles. A producer can follow when the dimension of its result that the loop moves is
subscripted as ``s*y + rest`` by the consumer, ``rest`` over loops of the reading stage alone, and by one loop of the
producer itself. Then a tile needs the producer's rows from ``s*first + least rest`` to ``s*last + most rest``, whatever
the kernels compute; consumers of consumers add theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine

from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use, is_parallel

Place = tuple[int, str]
"""A dimension of a temporary, and the loop of its producer that runs along it."""


@frozen
class Window:
    """Rows `step*first + low` to `step*last + high` of a kernel, for rows `first` to `last` of the tiled loop."""

    loop: str
    """Of the kernel, over its rows."""
    step: int = 1
    low: int = 0
    high: int = 0

    @property
    def overlaps(self) -> bool:
        """Neighbouring rows of the tiled loop need some rows both."""
        return self.high - self.low >= self.step

    def count(self, tile: int) -> int:
        """Rows for `tile` neighbouring rows of the tiled loop."""
        return self.step * (tile - 1) + self.high - self.low + 1

    def first(self, tile: int, number: str) -> Affine:
        """The first row for the tile whose number is the loop `number`."""
        return Affine.var(number, self.step * tile) + self.low

    def tile(self, rows: int) -> int:
        """The most neighbouring rows of the tiled loop that need no more than `rows`."""
        return (rows + self.low - self.high - 1) // self.step + 1

    def in_vectors(self, lanes: int) -> Window:
        """What contains it and begins and ends on multiples of `lanes` rows, for tiles that do so."""
        low = self.low // lanes * lanes
        return replace(self, low=low, high=self.high + -(self.high - low + 1 - self.step) % lanes)

    def joined(self, other: Window) -> Window | None:
        """What contains both; None where they move apart."""
        if (self.loop, self.step) != (other.loop, other.step):
            return None
        return Window(self.loop, self.step, min(self.low, other.low), max(self.high, other.high))


def windows(views: Sequence[KernelView], boxes: Mapping[str, int], loop: str) -> tuple[Window, ...] | None:
    """For each kernel what a tile along `loop` of the last one needs of it; None where one cannot follow.

    `boxes` has the number of the kernel that produces each temporary; kernels are in order.
    """
    found: dict[int, Window] = {len(views) - 1: Window(loop)}
    for k in reversed(range(len(views))):
        if k not in found:
            return None
        for buffer, producer in boxes.items():
            if producer == k or buffer not in views[k].reads():
                continue
            window = _needed(views[k], found[k], buffer, views[producer])
            both = window if window is None or producer not in found else found[producer].joined(window)
            if both is None:
                return None
            found[producer] = both
    return tuple(found[k] for k in range(len(views)))


def dimension(view: KernelView, buffer: str, loop: str) -> int | None:
    """The one dimension of a buffer that `loop` moves, the same in all uses; None where there is none, or several."""
    uses = [u for _, u in view.users(buffer)]
    found = {tuple(d for d, f in enumerate(u.forms) if loop in f.names) for u in uses}
    (only,) = found if len(found) == 1 else ((),)
    return only[0] if len(only) == 1 else None


def _needed(view: KernelView, window: Window, buffer: str, producer: KernelView) -> Window | None:
    """What the rows in `window` of a consumer need of a producer."""
    dim = dimension(view, buffer, window.loop)
    name = None if dim is None else _row_loop(producer, buffer, dim)
    if dim is None or name is None:
        return None
    whole: Window | None = None
    for stage in view.stages:
        for use in (u for u in stage.uses if u.buffer == buffer):
            one = _reached(stage, use, dim, window, name)
            whole = one if whole is None or one is None else whole.joined(one)
            if whole is None:
                return None
    return whole


def _reached(stage: Stage, use: Use, dim: int, window: Window, name: str) -> Window | None:
    form = use.forms[dim]
    scale = form.coefficient(window.loop)
    rest = form - Affine.var(window.loop, scale)
    own = {i.name: (0, i.range - 1) for i in stage.loops}
    if scale < 1 or use.writes or use.extent or is_indirect(stage, use) or not own.keys() >= set(rest.names):
        return None
    low, high = rest.bounds(own)
    return Window(name, scale * window.step, scale * window.low + low, scale * window.high + high)


def _row_loop(producer: KernelView, buffer: str, dim: int) -> str | None:
    """The loop of the producer that alone, over its full extent, subscripts this dimension of its result."""
    uses = producer.users(buffer)
    forms = {u.forms[dim] for _, u in uses}
    if len(forms) != 1 or any(u.extent or is_indirect(s, u) for s, u in uses):
        return None
    (form,) = forms
    size = producer.type_of(buffer).sizes[dim]
    plain = (
        i.name for i in producer.loops if form == Affine.var(i.name) and i.range == size and is_free(producer, i.name)
    )
    name = next(plain, None)
    return name if name is not None and dimension(producer, buffer, name) == dim else None


def is_free(view: KernelView, loop: str) -> bool:
    """Iterations of a shared loop run in any order, and nothing has bound them."""
    return any(i.name == loop and is_parallel(i) for i in view.loops)
