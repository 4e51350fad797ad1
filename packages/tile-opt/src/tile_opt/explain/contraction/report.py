"""`contraction_report`: the tables, the tile search and the plans of one contraction, as data that prints as it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.program.nodes import Contraction, Elementwise, Literal, Operand, Program, TensorType
from tile_ir.stripe.nodes import Block, Op
from tile_ir.target import HardwareSettings, PassConfig, Target

from tile_opt.explain.contraction.cost import TileCost, read_plans
from tile_opt.explain.contraction.flat import FlatKernel, flatten
from tile_opt.explain.contraction.read_plan import ReadPlan
from tile_opt.explain.contraction.search import Search, search
from tile_opt.explain.contraction.threads import Grid, Split, compute_plan, load_plan, pack_grid
from tile_opt.kernel.view import KernelView, open_kernel

SMALL_GPU = HardwareSettings(
    threads=256,
    vec_size=1,
    use_global=False,
    mem_width=32,
    max_mem=18 * 1024,
    max_regs=18 * 1024,
    goal_groups=20,
    goal_flops_per_byte=20,
    dim_sizes=(1024, 1024, 1024),
)
"""A small graphics processor."""


@frozen
class ContractionReport:
    """One kernel: its flatten table, output operations, tile search, read plans, thread plans and grid."""

    flat: FlatKernel
    search: Search
    reads: tuple[ReadPlan, ...]
    loads: tuple[tuple[Split, ...], ...]
    compute: tuple[Split, ...]
    grid: Grid

    @property
    def tile(self) -> dict[str, int]:
        """The chosen tile size by index."""
        return dict(zip(self.flat.names, self.search.winner.tile, strict=True))

    def cost(self, tile: Sequence[int]) -> TileCost:
        """The logged cost of one evaluated tile size; KeyError when the search did not meet it."""
        for cost in self.search.evaluated:
            if cost.tile == tuple(tile):
                return cost
        raise KeyError(f"the search did not evaluate {list(tile)}")

    def text(self, *, every_tile: bool = False) -> str:
        """The tables; with `every_tile` the whole log of the search."""
        chosen = ", ".join(f"{n}: {t}" for n, t in self.tile.items())
        costs = self.search.evaluated if every_tile else (self.search.winner,)
        parts = [
            f"Contraction:\n{self.flat.comment}",
            self.flat.table(),
            "Output operations:\n" + "\n".join(self.flat.post_ops),
            *(c.text() for c in costs),
            f"The chosen tile size is: [{chosen}]",
        ]
        for plan, splits in zip(self.reads, self.loads, strict=True):
            parts.append(f"Read plan of {plan.access.name} ({plan.size} elements):\n{plan.table()}")
            parts.append("Threads: " + "; ".join(map(str, splits)))
        parts.append("Compute threads: " + "; ".join(map(str, self.compute)))
        bases = "; ".join(f"{n} = {b}" for n, b in self.grid.bases)
        parts.append(f"Grid {'x'.join(map(str, self.grid.groups))}: {bases}")
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.text()


class HasSource(Protocol):
    """Anything with Tile source text, such as `tile_runtime.Function`."""

    @property
    def source(self) -> str: ...


def contraction_report(
    function: str | HasSource,
    shapes: Mapping[str, Sequence[int] | TensorType],
    settings: HardwareSettings = SMALL_GPU,
    *,
    fast: bool = True,
) -> ContractionReport:
    """The tables of a Tile function's first contraction kernel: ranges, strides, tile costs, read and thread plans.

    `function` is Tile source, or has it as `source`; `shapes` gives each input's shape (float32) or type. The kernel is the one the
    optimizer fuses: its output operations are those the `fuse` pass puts behind the contraction. `fast` is
    the search of a compilation with one tile trial; otherwise every reachable tile is visited.
    TileTypeError when the function has no contraction.
    """
    import tile_lang

    types = {n: s if isinstance(s, TensorType) else TensorType(DType.FLOAT32, tuple(s)) for n, s in shapes.items()}
    source = function if isinstance(function, str) else function.source
    program = tile_lang.bind(tile_lang.parse(source), types)
    for view in _fused(program, settings):
        flat = flatten(view)
        if flat is not None:
            return report_of(replace(flat, post_ops=_post_ops(program, view)), settings, fast=fast)
    raise TileTypeError(Diagnostic("TILE-E420", "this function has no contraction to report on"))


def report_of(flat: FlatKernel, settings: HardwareSettings, *, fast: bool = True) -> ContractionReport:
    """All decisions for one flat kernel."""
    found = search(flat, settings, fast=fast)
    tile = found.winner.tile
    reads = read_plans(flat, tile, settings)
    loads = tuple(load_plan(r, settings) for r in reads)
    return ContractionReport(flat, found, reads, loads, compute_plan(flat, tile, settings), pack_grid(flat, tile))


def _fused(program: Program, settings: HardwareSettings) -> list[KernelView]:
    """The kernels the optimizer makes of a program, before tiling."""
    from tile_opt.blocks.tree import main_of
    from tile_opt.passes import create
    from tile_opt.translate import to_stripe

    stripe = to_stripe(program)
    target = Target("report", settings)
    for name in ("inline", "fuse"):
        stripe = create(PassConfig(name)).apply(stripe, target)
    views = [open_kernel(k) for k in main_of(stripe).body if isinstance(k, Block)]
    return [v for v in views if v is not None]


def _post_ops(program: Program, view: KernelView) -> tuple[str, ...]:
    """The output operations of the kernel, in the names of the program."""
    fused = sum(isinstance(s, Op) for stage in view.stages for s in stage.body)
    reached: set[str] = set()
    lines: list[str] = []
    for op in program.ops:
        if isinstance(op, Contraction):
            reached = reached or {op.name}
        elif (
            isinstance(op, Elementwise) and reached & {a for a in op.args if isinstance(a, str)} and len(lines) < fused
        ):
            reached.add(op.name)
            lines.append(f"{op.name} = {op.fn}({', '.join(map(_operand, op.args))})")
    return tuple(lines)


def _operand(operand: Operand) -> str:
    if not isinstance(operand, Literal):
        return operand
    value = operand.value
    return str(int(value)) if float(value).is_integer() else str(value)
