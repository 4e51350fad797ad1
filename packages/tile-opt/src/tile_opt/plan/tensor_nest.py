"""A contraction on matrix instructions: warps over a group's tile, operands copied ahead into local memory.

    kernel [grid] {                                one group per output tile
      local boxes, a version per stage
      warp [warps of the group] {
        accumulator fragments; init
        copy steps 0 … stages - 2
        step loop { Wait; Sync; multiply, and copy a later step after the first slice }
        the last steps { Wait; Sync; multiply }
        output stages
      }
    }

`multiply` loads fragments of both operands from local memory and runs one instruction per pair of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tile_ir.dtype import DType
from tile_ir.matrix import LANES, LINES, MATRIX_LOADS, ROUND, TF32_BITS, Operand, elements, side_by_side
from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Const,
    Direction,
    Index,
    Instr,
    Load,
    Order,
    Refinement,
    Statement,
    Store,
    Sync,
    TensorType,
    Transfer,
    Wait,
)

from tile_opt.kernel.view import KernelView, Stage, Use, close_stage
from tile_opt.plan.banks import BANK_BYTES, COPY_BYTES, bank_conflicts, padding
from tile_opt.plan.fragments import FRAGMENT, LANE, LANE_INDEXES, fragment_type, walk
from tile_opt.plan.nest import GROUP_MEMORY, element, inout, scheduled, whole_refs
from tile_opt.plan.plans import TensorPlan
from tile_opt.plan.staging import Box, CopyPlan, box_of, copy_plan, global_subscripts, in_pieces, local_type

ROW, COLUMN, DEEP = "tile_row", "tile_column", "tile_deep"
"""Positions inside a group's tile and a step of the reduction."""
WARP_ROW, WARP_COLUMN = "warp_row", "warp_column"
MMA_ROW, MMA_COLUMN = "mma_row", "mma_column"
STEP, SLICE = "step", "slice"
PAIR = 2


@dataclass(frozen=True, slots=True)
class Staged:
    """An operand on its way through local memory into fragments."""

    use: Use
    operand: Operand
    axes: tuple[str, str]
    """What the operand's rows and columns are: `ROW`, `COLUMN` or `DEEP`."""
    box: Box
    type: TensorType
    copy: CopyPlan
    limits: tuple[Quasi, ...]
    """What keeps the copies of the last groups inside the buffer, each >= 0."""
    contiguous: int
    """Dimension of the box whose elements are neighbours in local memory, and closest in the other."""
    index: Index
    """The matrices that a warp loads side by side."""
    warp: tuple[str, int]
    """The index over warps that share them out, and how far apart they are."""

    @property
    def local(self) -> str:
        return f"{self.use.name}_local"

    @property
    def fragments(self) -> str:
        return f"{self.use.name}_fragments"

    @property
    def transposed(self) -> bool:
        """Neighbours in memory do not follow the reduction, as the lanes of a fragment do."""
        return DEEP not in self.box.inside[self.contiguous].names

    def inside(self, row: Affine, column: Affine) -> tuple[Affine, ...]:
        """Subscripts in the box of the element (row, column) of the group's whole operand."""
        values = dict(zip(self.axes, (row, column), strict=True))
        return tuple(f.substitute(values) for f in self.box.inside)


def build_tensor_nest(view: KernelView, main: Stage, plan: TensorPlan, collective: bool) -> Block:
    """The scheduled kernel; with `collective` the lanes of a warp load 16-bit fragments together."""
    return _Nest(view, main, plan, collective).build()


class _Nest:
    """Builds the blocks of one kernel."""

    def __init__(self, view: KernelView, main: Stage, plan: TensorPlan, collective: bool) -> None:
        self.view, self.main, self.plan = view, main, plan
        self.instruction = plan.roles.instruction
        self.collective = collective and self.instruction.dtype.bytes == 2
        self.grid = tuple(self._grid())
        self.warps = (
            Index(WARP_ROW, plan.shape.down, bind=Bind.SUBGROUP, axis=1),
            Index(WARP_COLUMN, plan.shape.across, bind=Bind.SUBGROUP, axis=1),
        )
        self.names = tuple(i.name for i in (*self.grid, *self.warps))
        self.steps = view.ranges[plan.roles.reduction] // plan.step
        self.slices = plan.step // self.instruction.shape[2]
        rows = Index(MMA_ROW, plan.shape.tall, bind=Bind.UNROLL)
        columns = Index(MMA_COLUMN, plan.shape.wide, bind=Bind.UNROLL)
        self.tiles = (rows, columns)
        left, right = (main.use(name) for name in (plan.roles.left, plan.roles.right))
        self.left = self._stage(left, self.instruction.a, (ROW, DEEP), rows, (WARP_ROW, plan.warp_rows))
        self.right = self._right(right, columns)
        self.staged = (self.left, self.right)
        self.allocs = {a.into: self._grown(a) for a in view.allocs}

    # --- forms ----------------------------------------------------------------------------------------

    def _grid(self) -> list[Index]:
        sizes = {self.plan.roles.rows: self.plan.rows, self.plan.roles.columns: self.plan.columns}
        counts = {i.name: -(-i.range // sizes.get(i.name, 1)) for i in self.view.loops}
        return [Index(f"{n}_g", count, bind=Bind.GRID) for n, count in counts.items() if count > 1]

    def _base(self, loop: str, size: int) -> Affine:
        """The first iteration of the group's part of a shared loop."""
        name = f"{loop}_g"
        return Affine.var(name, size) if any(g.name == name for g in self.grid) else Affine()

    def _shared(self, row: Affine, column: Affine) -> dict[str, Affine]:
        """Iterations of the shared loops at a row and a column of the group's tile."""
        roles = self.plan.roles
        forms = {i.name: self._base(i.name, 1) for i in self.view.loops}
        forms[roles.rows] = self._base(roles.rows, self.plan.rows) + row
        forms[roles.columns] = self._base(roles.columns, self.plan.columns) + column
        return forms

    # --- buffers --------------------------------------------------------------------------------------

    def _stage(self, use: Use, operand: Operand, axes: tuple[str, str], index: Index, warp: tuple[str, int]) -> Staged:
        loops = self._shared(Affine.var(ROW), Affine.var(COLUMN))
        loops[self.plan.roles.reduction] = Affine.of({STEP: self.plan.step, DEEP: 1})
        forms = tuple(f.substitute(loops) for f in use.forms)
        box = box_of(forms, {ROW: self.plan.rows, COLUMN: self.plan.columns, DEEP: self.plan.step})
        whole = self.view.type_of(use.buffer)
        # Where a batch lies closest in memory, no neighbours are copied together.
        contiguous = min((d for d, e in enumerate(box.extents) if e > 1), key=lambda d: whole.strides[d])
        item = LANE + Affine.of({WARP_ROW: LANES * self.plan.shape.across, WARP_COLUMN: LANES})
        lanes = next(n for n in _pieces(whole.dtype) if _copies(box, whole, contiguous, n))
        copy = copy_plan(f"{use.name}_c", box, whole, contiguous, item, self.plan.warps * LANES, lanes)
        limits = self._limits(box, copy, contiguous, whole)
        staged = Staged(use, operand, axes, box, whole, copy, limits, contiguous, index, warp)
        return replace(staged, type=self._padded(staged))

    def _limits(self, box: Box, copy: CopyPlan, contiguous: int, whole: TensorType) -> tuple[Quasi, ...]:
        """Of every dimension in which some group's box leaves the buffer."""
        ranges = {STEP: (0, self.steps - 1)} | {g.name: (0, g.range - 1) for g in self.grid}
        found: list[Quasi] = []
        for d, form in enumerate(global_subscripts(box, copy)):
            low, high = box.corner[d].bounds(ranges)
            last = whole.sizes[d] - (copy.lanes if d == contiguous else 1)
            found += [_negated(form, last)] if high + box.extents[d] > whole.sizes[d] else []
            found += [form] if low < 0 else []
        return tuple(found)

    def _right(self, use: Use, columns: Index) -> Staged:
        """The second operand; a collective load fetches two of its matrices at once."""
        pairs = self.collective and columns.range % PAIR == 0
        operand = side_by_side(self.instruction.b, PAIR) if pairs else self.instruction.b
        index = replace(columns, name=f"{columns.name}_pair", range=columns.range // PAIR) if pairs else columns
        return self._stage(use, operand, (DEEP, COLUMN), index, (WARP_COLUMN, self.plan.warp_columns))

    def _padded(self, s: Staged) -> TensorType:
        """The box in local memory, with a pitch that keeps the lanes of a load on different banks."""
        types = padding(s.box.extents[s.contiguous], s.type.dtype.bytes)
        return min((local_type(s.box, s.type, s.contiguous, pad) for pad in types), key=lambda t: self._conflicts(s, t))

    def _conflicts(self, s: Staged, type: TensorType) -> int:
        """Bank conflicts of loading the first fragment."""
        places = [elements(s.operand)[lane, 0] for lane in range(LANES)]
        if self.collective:
            along_rows = s.axes[0] == DEEP if s.transposed else s.axes[0] != DEEP
            places = [(n, 0) if along_rows else (0, n) for n in range(LINES)]
        forms = (s.inside(Affine((), row), Affine((), column)) for row, column in places)
        at = [sum(f.const * stride for f, stride in zip(form, type.strides, strict=True)) for form in forms]
        return bank_conflicts([a * type.dtype.bytes for a in at], COPY_BYTES if self.collective else BANK_BYTES)

    def _grown(self, alloc: Refinement) -> Refinement:
        """A local of one iteration becomes fragments of the warp's whole tile."""
        sizes = alloc.type.sizes + tuple(i.range for i in self.tiles)
        type = fragment_type(alloc.type.dtype, self.instruction.c, sizes)
        return replace(alloc, type=type, access=(Affine(),) * len(type.sizes), loc=FRAGMENT)

    def _local(self, s: Staged) -> Refinement:
        zero = (Affine(),) * len(s.type.sizes)
        return Refinement(Direction.ALLOC, s.local, "", zero, s.type, loc=GROUP_MEMORY, versions=self.plan.stages)

    def _fragments(self, s: Staged) -> Refinement:
        type = fragment_type(s.type.dtype, s.operand, (s.index.range,))
        return Refinement(Direction.ALLOC, s.fragments, "", (Affine(),) * len(type.sizes), type, loc=FRAGMENT)

    def _version(self, s: Staged, step: Affine, direction: Direction) -> Refinement:
        """The copy of an operand's box that holds `step`."""
        access = (step, *(Affine(),) * len(s.type.sizes))
        return Refinement(direction, s.local, s.local, access, s.type, loc=GROUP_MEMORY)

    # --- blocks ---------------------------------------------------------------------------------------

    def build(self) -> Block:
        """The kernel: local boxes, and one block of all warps."""
        locals_ = tuple(self._local(s) for s in self.staged)
        body: list[Statement] = []
        for stage in self.view.stages:
            body += self._product() if stage is self.main else [self._output(stage)]
        passed = tuple(inout(r) for r in locals_)
        block = Block(
            f"{self.view.name}_warps",
            indexes=tuple(_passed(g.name) for g in self.grid) + self.warps,
            refs=whole_refs(self.view, self.view.stages) + passed + tuple(self.allocs.values()),
            body=tuple(body),
        )
        return scheduled(self.view, self.grid, (block,), locals_)

    def _product(self) -> list[Statement]:
        """The whole reduction, copies running ahead of the products."""
        ahead = self.plan.stages - 1
        wait = Wait(0, self.plan.stages - 2)
        body: list[Statement] = [self._cleared()] if any(s.limits for s in self.staged) else []
        for step in range(ahead):
            # A wait closes the batch of copies before it.
            body += [*([wait] if step else []), self._copying(step)]
        if self.steps > ahead:
            body.append(self._loop(wait))
        for step in range(self.steps - ahead, self.steps):
            body += [wait, Sync(), self._last(step)]
        return body

    def _loop(self, wait: Wait) -> Block:
        """Steps beside which a later one is copied."""
        ahead = self.plan.stages - 1
        step = Affine.var(STEP)
        later = tuple(replace(self._version(s, step + ahead, Direction.OUT), into=_later(s)) for s in self.staged)
        now = tuple(self._version(s, step, Direction.IN) for s in self.staged)
        copies = tuple(self._copy(s, _later(s), step + ahead, (*self.names, STEP)) for s in self.staged)
        return self._block(
            f"{self.view.name}_steps",
            # The first loads do not wait behind the copies.
            (wait, Sync(), self._multiply(0, 1), *copies, *self._rest()),
            (Index(STEP, self.steps - ahead, order=Order.ORDERED),),
            (*self._inputs(), *later, *now, *self._accumulators()),
        )

    def _copying(self, step: int) -> Block:
        """The copies of one of the first steps."""
        later = tuple(self._version(s, Affine((), step), Direction.OUT) for s in self.staged)
        copies = tuple(self._copy(s, s.local, Affine((), step), self.names) for s in self.staged)
        return self._block(f"copy_step_{step}", copies, (), (*self._inputs(), *later))

    def _last(self, step: int) -> Block:
        """The products of a step whose successors are all copied."""
        now = tuple(self._version(s, Affine((), step), Direction.IN) for s in self.staged)
        return self._block(f"step_{step}", (self._multiply(0, self.slices),), (), (*now, *self._accumulators()))

    def _block(
        self, name: str, body: tuple[Statement, ...], indexes: tuple[Index, ...], refs: tuple[Refinement, ...]
    ) -> Block:
        """A block inside the warps' one, with every index that is known there."""
        return Block(name, tuple(_passed(n) for n in self.names) + indexes, refs=refs, body=body)

    def _inputs(self) -> tuple[Refinement, ...]:
        """The operands' whole buffers, each once."""
        named = {r.into: r for r in self.view.refs}
        return tuple(
            replace(inout(named[b]), dir=Direction.IN) for b in dict.fromkeys(s.use.buffer for s in self.staged)
        )

    def _accumulators(self) -> tuple[Refinement, ...]:
        written = {u.buffer for u in self.main.uses if u.writes}
        return tuple(inout(a) for name, a in self.allocs.items() if name in written)

    # --- copies ---------------------------------------------------------------------------------------

    def _copy(self, s: Staged, target: str, step: Affine, names: tuple[str, ...]) -> Block:
        """An item's share of copying one step's box, 16 bytes at a time where they are aligned."""
        first = {i.name: Affine() for i in s.copy.loops if i.bind is Bind.VECTOR} | {STEP: step}
        source = tuple(f.substitute(first) for f in global_subscripts(s.box, s.copy))
        local = tuple(f.substitute(first) for f in s.copy.subscripts)
        limits = tuple(f.substitute(first) for f in s.limits)
        whole = self.view.type_of(s.use.buffer)
        refs = (
            Refinement(Direction.IN, "src", s.use.buffer, source, self._line(s, whole)),
            Refinement(Direction.OUT, "dst", target, local, self._line(s, s.type), loc=GROUP_MEMORY),
        )
        loops = tuple(i for i in s.copy.loops if i.bind is not Bind.VECTOR)
        passed = tuple(_passed(n) for n in names)
        body = (Transfer("dst", "src"),)
        return Block(
            f"copy_{s.use.name}", passed + LANE_INDEXES + loops, (*s.copy.constraints, *limits), refs=refs, body=body
        )

    def _line(self, s: Staged, of: TensorType) -> TensorType:
        sizes = tuple(s.copy.lanes if d == s.contiguous else 1 for d in range(len(of.sizes)))
        return replace(of, sizes=sizes)

    def _cleared(self) -> Block:
        """Zeros in every version of the boxes: what the copies leave out is then a number."""
        body = tuple(self._zeros(s) for s in self.staged if s.limits)
        refs = tuple(replace(inout(self._local(s)), dir=Direction.OUT) for s in self.staged if s.limits)
        return self._block("clear", (*body, Sync()), (), refs)

    def _zeros(self, s: Staged) -> Block:
        version = Index("version", self.plan.stages, bind=Bind.UNROLL)
        access = (Affine.var(version.name), *s.copy.subscripts)
        target = Refinement(Direction.OUT, "dst", s.local, access, element(s.type), loc=GROUP_MEMORY)
        passed = tuple(_passed(n) for n in self.names)
        body = (Const("$zero", 0.0, s.type.dtype), Store("dst", "$zero"))
        indexes = (*passed, *LANE_INDEXES, version, *s.copy.loops)
        return Block(f"clear_{s.use.name}", indexes, s.copy.constraints, refs=(target,), body=body)

    # --- products -------------------------------------------------------------------------------------

    def _rest(self) -> tuple[Block, ...]:
        return (self._multiply(1, self.slices - 1),) if self.slices > 1 else ()

    def _multiply(self, first: int, count: int) -> Block:
        """Slices of a step, as deep as the instruction, each loaded and multiplied."""
        boxes = tuple(
            Refinement(Direction.IN, s.local, s.local, (Affine(),) * len(s.type.sizes), s.type, loc=GROUP_MEMORY)
            for s in self.staged
        )
        body = (*(self._load(s, first) for s in self.staged), self._instructions())
        refs = (*boxes, *(self._fragments(s) for s in self.staged), *self._accumulators())
        return self._block("multiply", body, (Index(SLICE, count, bind=Bind.UNROLL),), refs)

    def _corner(self, s: Staged, first: int, row: Affine, column: Affine) -> tuple[Affine, Affine]:
        """A position inside matrix `s.index` of the warp and a slice, counted from `first`, as one in the group's operand."""
        name, pitch = s.warp
        side = Affine.of({name: pitch, s.index.name: s.operand.sizes[s.axes.index(DEEP) ^ 1]})
        deep = (Affine.var(SLICE) + first) * self.instruction.shape[2]
        return (deep + row, side + column) if s.axes[0] == DEEP else (side + row, deep + column)

    def _load(self, s: Staged, first: int) -> Block:
        """Local memory to fragments: together, or every lane its own elements."""
        if self.collective:
            indexes = tuple(Index(n, size) for n, size in zip(("row", "column"), s.operand.sizes, strict=True))
            row, column = (Affine.var(i.name) for i in indexes)
            instr = Instr(MATRIX_LOADS[s.transposed], tuple((i.name, i.range) for i in indexes))
        else:
            steps = walk(s.operand, s.use.name)
            indexes, row, column = LANE_INDEXES + steps.registers, steps.row, steps.column
            instr = Instr(ROUND, params=(TF32_BITS,)) if self.instruction.dtype is DType.FLOAT32 else None
        fragments = self._fragments(s)
        refs = (
            Refinement(
                Direction.IN,
                "src",
                s.local,
                s.inside(*self._corner(s, first, row, column)),
                element(s.type),
                loc=GROUP_MEMORY,
            ),
            Refinement(
                Direction.OUT,
                "dst",
                s.fragments,
                (Affine.var(s.index.name), row, column),
                element(fragments.type),
                loc=FRAGMENT,
            ),
        )
        load = Block(f"load_{s.use.name}", refs=refs, body=(Load("$x", "src"), Store("dst", "$x")), instr=instr)
        if self.collective:
            return self._repeated(load, (s.index,), indexes)
        return replace(load, indexes=(*(_passed(n) for n in (*self.names, SLICE)), s.index, *indexes))

    def _repeated(self, leaf: Block, tiles: tuple[Index, ...], indexes: tuple[Index, ...]) -> Block:
        """An instruction with its own indexes, inside a block that repeats it."""
        names = (*self.names, SLICE)
        outer = tuple(replace(inout(r), dir=r.dir) for r in self._sources(leaf))
        inner = replace(leaf, indexes=(*(_passed(n) for n in (*names, *(t.name for t in tiles))), *indexes))
        return Block(f"{leaf.name}_all", (*(_passed(n) for n in names), *tiles), refs=outer, body=(inner,))

    def _sources(self, leaf: Block) -> list[Refinement]:
        known = {
            r.into: r for s in self.staged for r in (self._fragments(s), replace(self._local(s), versions=1))
        } | self.allocs
        return [replace(known[r.source], dir=r.dir) for r in leaf.refs]

    def _instructions(self) -> Block:
        """Every pair of the slice's fragments through the instruction; its body stays as its meaning."""
        sizes = zip("mnk", self.instruction.shape, strict=True)
        indexes = tuple(Index(name, size) for name, size in sizes)
        m, n, k = (Affine.var(i.name) for i in indexes)
        row, column = (Affine.var(t.name) for t in self.tiles)
        places: dict[str, tuple[str, tuple[Quasi, ...]]] = {
            self.left.use.name: (self.left.fragments, (row, m, k)),
            self.right.use.name: (self.right.fragments, (column, k, n)),
        }
        if self.right.index.name != MMA_COLUMN:
            pair, second = (DivMod(column, PAIR, op) for op in (DivModOp.DIV, DivModOp.MOD))
            places[self.right.use.name] = (
                self.right.fragments,
                (pair, k, replace(second, scale=self.instruction.shape[1], plus=n)),
            )
        types = {s.fragments: self._fragments(s).type for s in self.staged} | {
            a: r.type for a, r in self.allocs.items()
        }
        refs: list[Refinement] = []
        for use in self.main.uses:
            source, access = places.get(use.name, (use.buffer, (*use.forms, row, column, m, n)))
            refs.append(
                Refinement(use.dir, use.name, source, access, element(types[source]), agg=use.agg, loc=FRAGMENT)
            )
        instr = Instr(self.instruction.name, tuple((i.name, i.range) for i in indexes))
        leaf = Block(
            self.main.name,
            refs=tuple(refs),
            body=self.main.body,
            instr=instr,
            tags=self.main.tags,
            origin=self.main.origin,
        )
        return self._repeated(leaf, self.tiles, indexes)

    def _output(self, stage: Stage) -> Block:
        """An init or output stage over the warp's tile; groups over the end touch only what exists."""
        steps = walk(self.instruction.c, "cell")
        rows, columns = self.plan.roles.rows, self.plan.roles.columns
        m, n, _ = self.instruction.shape
        row = Affine.of({WARP_ROW: self.plan.warp_rows, MMA_ROW: m}) + steps.row
        column = Affine.of({WARP_COLUMN: self.plan.warp_columns, MMA_COLUMN: n}) + steps.column
        inside = (*(Affine.var(t.name) for t in self.tiles), steps.row, steps.column)
        uses = tuple(replace(u, forms=u.forms + inside) if self.view.is_local(u.buffer) else u for u in stage.uses)
        *outer, last = steps.registers
        loops = (*self.tiles, *LANE_INDEXES, *outer, replace(last, bind=Bind.VECTOR, lanes=last.range))
        limits: list[Affine] = []
        if not all(self.view.is_local(u.buffer) for u in stage.uses):
            ragged = [(rows, self.plan.rows), (columns, self.plan.columns)]
            limits = [Affine.var(n, -1) + (self.view.ranges[n] - 1) for n, size in ragged if self.view.ranges[n] % size]
        moved = replace(stage, uses=uses, loops=loops, constraints=stage.constraints + tuple(limits))
        buffers = {r.into: r for r in self.view.refs} | self.allocs
        return close_stage(moved.substitute(self._shared(row, column)), buffers, self.names)


def _pieces(dtype: DType) -> tuple[int, ...]:
    """Elements of the copies that a device can run ahead, widest first; one element in any case."""
    return (*(n // dtype.bytes for n in (COPY_BYTES, 8, 4) if n > dtype.bytes), 1)


def _copies(box: Box, whole: TensorType, contiguous: int, lanes: int) -> bool:
    """Whether copies of so many elements are aligned, and each inside the buffer or outside, never half of each."""
    return lanes == 1 or (whole.sizes[contiguous] % lanes == 0 and in_pieces(box, whole, contiguous, lanes))


def _passed(name: str) -> Index:
    return Index(name, 1, Affine.var(name))


def _later(s: Staged) -> str:
    return f"{s.local}_later"


def _negated(form: Quasi, limit: int) -> Quasi:
    """``limit - form``."""
    if isinstance(form, Affine):
        return form * -1 + limit
    return DivMod(form.num, form.den, form.op, -form.scale, form.plus * -1 + limit)
