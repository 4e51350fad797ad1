"""Program to Program clean-ups before scheduling; each is a frozen dataclass whose fields are its options."""

from collections.abc import Iterable
from dataclasses import replace

from tile_ir.deadline import check
from tile_ir.dots import DOTS
from tile_ir.dtype import DType
from tile_ir.matrix import MATRIX_INSTRUCTIONS
from tile_ir.matrix.x86 import PRODUCTS
from tile_ir.program.nodes import Program
from tile_ir.target import Target

from tile_opt.program.alike import AlikeFactors as AlikeFactors
from tile_opt.program.along_largest import AlongLargest as AlongLargest
from tile_opt.program.base import Rewrite as Rewrite
from tile_opt.program.border_pieces import BorderPieces as BorderPieces
from tile_opt.program.cascade import Cascade as Cascade
from tile_opt.program.channels_last import ChannelsLast as ChannelsLast
from tile_opt.program.compose_pieces import ComposePieces as ComposePieces
from tile_opt.program.convert_once import ConvertOnce as ConvertOnce
from tile_opt.program.dead import DropDead as DropDead
from tile_opt.program.distribute import Distribute as Distribute
from tile_opt.program.dots import DotProducts as DotProducts
from tile_opt.program.exchange import ExchangeSums as ExchangeSums
from tile_opt.program.factorise import Factorise as Factorise
from tile_opt.program.few_columns import FewColumns as FewColumns
from tile_opt.program.fold_scales import FoldScales as FoldScales
from tile_opt.program.heads import HeadsApart as HeadsApart
from tile_opt.program.integer_scatters import IntegerScatters as IntegerScatters
from tile_opt.program.join_groups import JoinGroups as JoinGroups
from tile_opt.program.lift_reshapes import LiftReshapes as LiftReshapes
from tile_opt.program.literals import Literals as Literals
from tile_opt.program.long_orders import LongOrders as LongOrders
from tile_opt.program.long_places import LongPlaces as LongPlaces
from tile_opt.program.masked_rows import MaskedRows as MaskedRows
from tile_opt.program.normalise_last import NormaliseLast as NormaliseLast
from tile_opt.program.one_depth import OneDepth as OneDepth
from tile_opt.program.one_place import OnePlace as OnePlace
from tile_opt.program.online import Online as Online
from tile_opt.program.parts_read import PartsRead as PartsRead
from tile_opt.program.permutations import ComposePermutations as ComposePermutations
from tile_opt.program.placed import PlacedParts as PlacedParts
from tile_opt.program.powers import Powers as Powers
from tile_opt.program.prepack import Prepack as Prepack
from tile_opt.program.separate import SeparateWindows as SeparateWindows
from tile_opt.program.share import ShareCommon as ShareCommon
from tile_opt.program.short_sorts import ShortSorts as ShortSorts
from tile_opt.program.single import SingleTerms as SingleTerms
from tile_opt.program.split_batches import SplitBatches as SplitBatches
from tile_opt.program.split_reduction import SplitReduction as SplitReduction
from tile_opt.program.strided_targets import StridedTargets
from tile_opt.program.subsample import Subsample as Subsample
from tile_opt.program.tall_products import TallProducts as TallProducts
from tile_opt.program.turn_results import TurnResults as TurnResults
from tile_opt.program.unfold import Unfold as Unfold
from tile_opt.program.unfold_gradients import UnfoldGradients as UnfoldGradients
from tile_opt.program.whole_rounds import WholeRounds as WholeRounds
from tile_opt.program.wide_rows import WideRows as WideRows

ROWS = 8
"""Rows of a tile that a register tile has: with fewer, each vector that it loads is multiplied too seldom."""
NEVER = 1 << 62
"""Uses of each element of a narrow operand from which a copy is worth it where instructions take narrow ones."""
STEPPED = 32
"""Elements of a row from which on a kernel may walk it piece by piece: of 36 to 77 it takes a half of what three kernels do (an H200)."""
ALIKE = 32
"""Uses of each element of a wider factor that is rounded to the shorter one's dtype for matrix instructions."""
DEEP = 128
"""Results of a row of which items of a graphics processor have room for two sums."""
APART_USES, APART = 192, 1 << 26
"""Uses of each element, and of all, from which items of a graphics processor rather read copies of what lies apart."""
FRAMED = 1 << 28
"""Bytes of framed copies from which on a graphics processor rather has kernels for interiors and strips: an H200 takes 0.25 of the
time for four of 268 MB, 1.4 for four of 17 MB."""
UNFOLDED_USES = 64
"""Products of each element of windows' rows from which on a processor's tile registers pay their copy: of 3x3 windows of three channels
and 64 results, with 27, vectors take half the time, of 7x7 ones, with 147, twice as long."""
WHOLE_USES = 1 << 24
"""Uses of all elements that a step leaves from which products on tile registers pay a copy of rows that are read whole: 1x1 windows, a step
of two apart, of 96 channels to 200 took 0.75 of the time with one (30 million), of 64 to 96 1.2 times as long (six million)."""
WINDOW_GAIN, RAGGED_GAIN = 3.0, 6.0
"""Times fewer elements from which a graphics processor rather takes windows a dimension at a time: of 7x7 elements (3.5 times fewer) in
0.7 of the time, of 5x5 bytes in ragged rows (2.5) in four times as much."""
TILE = 16
"""Elements of a row that tiles of a graphics processor divide evenly."""
CLEAN: tuple[Rewrite, ...] = (
    Literals(),
    Powers(),
    LiftReshapes(),
    SplitBatches(),
    ComposePermutations(),
    ShareCommon(),
    DropDead(),
    PartsRead(),
)
"""What leaves nothing that need not be computed, so that others find what they look for."""
FASTER: tuple[Rewrite, ...] = (
    Factorise(columns=16, spared=1 << 16),
    SeparateWindows(),
    Subsample(),
    Prepack(),
    AlongLargest(),
)
PARTIAL: tuple[Rewrite, ...] = (SplitReduction(), FewColumns())
"""What aggregates in parts, those that the others made as well."""
STANDARD: tuple[Rewrite, ...] = (*CLEAN, *FASTER, *PARTIAL, ConvertOnce())
"""What a compilation for a CPU applies, in order."""


def rewrites_for(target: Target) -> tuple[Rewrite, ...]:
    """What a compilation for this target, and what its user allows, applies, in order."""
    options = target.options
    fold: tuple[Rewrite, ...] = (FoldScales(),) if options.fold_scales or options.fast_math else ()
    alone = target.settings.threads == 1
    return (*fold, *_scatters(target), *(_for_cores(target) if alone else _for_groups(target)))


def _for_cores(target: Target) -> tuple[Rewrite, ...]:
    """What a device whose cores run one item at a time takes."""
    units = target.settings.cores
    return (
        *_unfolded_for_tiles(target),
        DotProducts(target=target),
        PlacedParts(),
        LongPlaces(),
        ShortSorts(bytes=target.settings.vector_bytes, length=1 << 11 if "Bitcast" in target.nodes else 0),
        StridedTargets(rows=False),
        *CLEAN,
        *((LongOrders(),) if "Bitcast" in target.nodes else ()),
        ComposePieces(),
        BorderPieces(),
        Cascade(kept=_row_kept(target)),
        NormaliseLast(kept=STEPPED),
        TallProducts(),
        DropDead(),
        *FASTER,
        *(() if target.settings.masks else (WholeRounds(),)),
        *(replace(r, cores=units) if isinstance(r, SplitReduction) else r for r in PARTIAL),
        ConvertOnce(),
    )


def _for_groups(target: Target) -> tuple[Rewrite, ...]:
    """What a device of groups of items takes."""
    units = target.settings.cores
    steps = any(entry.name == "join_rows" for entry in target.passes)
    apart = Subsample(uses=APART_USES, least=APART, tile=TILE)
    kept = STEPPED if steps else 0
    masked = MaskedRows(kept=kept, options=target.options)
    weighted = (
        AlikeFactors(uses=ALIKE if target.options.reduced_precision and DType.BFLOAT16 in _factors(target) else 0),
        *((OnePlace(), PlacedParts(products=True)) if steps else ()),
        Distribute(kept=kept, deep=DEEP if _rounds(target) else 0),
        ExchangeSums(kept=kept),
        HeadsApart(kept=kept),
        WideRows(kept=kept if _rounds(target) else 0),
        NormaliseLast(kept=kept, short=target.options.reduced_precision),
    )
    # No kernel walks rows of float64 on matrix instructions.
    walked = _factors(target) - {DType.FLOAT64} if steps else frozenset[DType]()
    split = SplitReduction(units=units, joined="LastGroup" in target.nodes, walked=walked)
    rows = (masked, SingleTerms(), *weighted, ShareCommon(), DropDead(), Online(units=units), split)
    return (
        *_channels_last(target),
        StridedTargets(),
        *CLEAN,
        ComposePieces(),
        BorderPieces(least=FRAMED, step=NEVER, zeros=False),
        Factorise(),
        SeparateWindows(gain=WINDOW_GAIN, ragged=RAGGED_GAIN, near=True),
        *_unfolded(target),
        apart,
        OneDepth(_factors(target)),
        Prepack(),
        ConvertOnce(uses=NEVER, alike=True),
        *rows,
    )


def _rounds(target: Target) -> bool:
    """Matrix instructions add up products."""
    return any(target.options.rounds(MATRIX_INSTRUCTIONS[name].a.dtype) for name in target.matrix)


def _team_factors(target: Target) -> frozenset[DType]:
    """Of matrix instructions that teams of sub-groups share, where their rounding is allowed."""
    found = (MATRIX_INSTRUCTIONS[name] for name in target.matrix)
    return _factors(target) & frozenset(i.a.dtype for i in found if i.team > 1)


def _factors(target: Target) -> frozenset[DType]:
    """Of all matrix instructions, where their rounding is allowed: that of integers is none."""
    found = (MATRIX_INSTRUCTIONS[name] for name in target.matrix)
    return frozenset(i.a.dtype for i in found if i.is_exact or target.options.rounds(i.a.dtype))


def _channels_last(target: Target) -> tuple[Rewrite, ...]:
    """Images as matrix instructions take them."""
    dtypes = _team_factors(target)
    return (ChannelsLast(dtypes=dtypes),) if dtypes else ()


def _unfolded(target: Target) -> tuple[Rewrite, ...]:
    """Rows and columns of windows for the same instructions."""
    dtypes = _team_factors(target)
    rewrites = (
        Unfold(dtypes=dtypes),
        UnfoldGradients(dtypes=dtypes),
        JoinGroups(dtypes=dtypes),
        TurnResults(dtypes=dtypes),
    )
    return rewrites if dtypes else ()


def _unfolded_for_tiles(target: Target) -> tuple[Rewrite, ...]:
    """For matrix instructions on tile registers, what is read with steps side by side, and rows of windows where rounding is allowed."""
    found = {DOTS[PRODUCTS[name]].a for name in target.matrix if name in PRODUCTS}
    dtypes = frozenset(dtype for dtype in found if dtype.is_float and target.options.rounds(dtype))
    return (
        (Subsample(whole=WHOLE_USES), Unfold(dtypes=dtypes, least=0, uses=UNFOLDED_USES, joined=True)) if found else ()
    )


def _row_kept(target: Target) -> int:
    """Elements of a row of products of which a tile of rows stays in the second cache, before and after what becomes of them."""
    caches = target.machine.caches
    return caches[1].bytes // 2 // (ROWS * 2 * 4) if len(caches) > 1 else 0


def _scatters(target: Target) -> tuple[Rewrite, ...]:
    """Where the pass `atomics` will let rows that meet run in any order, what makes that so for more of them."""
    found = [entry for entry in target.passes if entry.name == "atomics"]
    return tuple(IntegerScatters(**entry.options) for entry in found) if "Bitcast" in target.nodes else ()


def rewrite(program: Program, rewrites: Iterable[Rewrite] = STANDARD) -> Program:
    """`program` after each rewrite in turn: the same inputs, outputs and results."""
    for each in rewrites:
        check("rewriting", program.name)
        program = each.apply(program)
    return program
