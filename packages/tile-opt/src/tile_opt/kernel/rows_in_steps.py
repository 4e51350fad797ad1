"""Kernels over rows that need no whole row at once: what a product gives of a row, weighed below its largest element, and summed.

    scores = product;  largest = max over the row;  weights = exp(scores - largest);  sums = sum of weights (* values)

Weights may be made of several products, and below a largest element that is known: then sums of values are all there is.
That is how the gradients of attention compute scores again, instead of keeping them. Several products may weigh, each with
weights of its own: the gradients of keys and values are made of the same scores.

The largest element grows while a row is walked piece by piece, and ``exp(x - new) = exp(x - old) * exp(old - new)``: a sum
over the pieces so far becomes one about the new largest element when it is multiplied once. So a piece is all that is kept
of a row. `rows_in_steps` finds that a kernel in normal form is of this kind from what its stages compute. What belongs to the first few
elements of a row alone, and waits for no largest element, is known from the first piece on: that is a sample of the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from math import inf, isfinite, prod

from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Const, Load, LoadIndex, Op, Store
from tile_ir.stripe.walk import scalars_behind

from tile_opt.kernel.row_stages import GIVES, WEIGHS, in_order, kind_of, named_apart
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import is_elementwise, is_heavy, is_product, merged_use

LEAST = 2
"""Products: one gives rows, and one takes them."""
Scalar = Load | Op | Const | LoadIndex


@dataclass(frozen=True)
class RowsInSteps:
    """What the stages of a kernel are for, by their numbers."""

    view: KernelView
    firsts: tuple[int, ...]
    """The products that give rows."""
    lasts: tuple[int, ...]
    """The products that weigh with what is made of these."""
    pieces: Mapping[int, str]
    """The stages that walk rows, and by which of their own loops."""
    columns: Mapping[int, str]
    """The stages that go over results of the last products, and by which loop."""
    across: Mapping[str, int]
    """The buffers that hold these results, and what is made of them; of which product."""
    wide: Mapping[str, int]
    """The buffers that hold a row, and its dimension."""
    results: tuple[str, ...]
    """The buffers of what the last products sum up."""
    largest: str
    """The buffer of the largest element so far; empty where nothing is below it."""
    sums: tuple[str, ...]
    """What else stages merge into, piece by piece."""
    instead: float | None = None
    """Below what the sums are where the largest element is -inf, if not below that."""
    totals: tuple[str, ...] = ()
    """What stages behind the pieces sum up of the results of a row."""
    samples: tuple[str, ...] = ()
    """What stages merge of the first few elements of a row, whatever weighs these: pieces know it from the first one on."""

    @property
    def products(self) -> tuple[int, ...]:
        """All of them, in order."""
        return *self.firsts, *self.lasts

    def operands(self, number: int) -> list[Use]:
        """What a product reads from memory."""
        return [
            u for u in self.view.stages[number].uses if u.reads and not u.writes and not self.view.is_local(u.buffer)
        ]

    @property
    def row(self) -> str:
        """The loop over scores of a row."""
        return self.pieces[self.firsts[0]]

    def last_of(self, number: int) -> int | None:
        """The product whose results a stage goes over."""
        uses = self.view.stages[number].uses if number in self.columns else ()
        return next((self.across[u.buffer] for u in uses if u.buffer in self.across), None)

    def weights(self, last: int) -> str:
        """The buffer of the weights that one of the last products takes."""
        return next(u.buffer for u in self.view.stages[last].uses if u.buffer in self.wide)

    def before(self, number: int) -> bool:
        """The stage starts what pieces merge into, or what is made of samples."""
        uses = self.view.stages[number].uses
        known = self.largest, *self.sums, *self.samples
        starts = number not in self.pieces and all(u.buffer in known and not u.reads for u in uses)
        return starts or self.of_samples(number)

    def of_samples(self, number: int) -> bool:
        """The stage makes a number of each row of samples alone."""
        stage, read = self.view.stages[number], {u.buffer for u in self.view.stages[number].uses if u.reads}
        alone = number not in self.pieces and bool(read) and read <= {*self.samples} and is_elementwise(stage)
        return alone and all(self.view.is_local(u.buffer) for u in stage.uses)


def rows_in_steps(view: KernelView) -> RowsInSteps | None:
    """What the stages are for; None for other kernels, and where rows are needed whole."""
    of = next((of for of in (is_heavy, is_product) if sum(of(view, s) for s in view.stages) >= LEAST), None)
    if of is None or view.constraints or not _plain(view):
        return None
    ordered = named_apart(replace(view, stages=tuple(in_order(view, of))), of)
    kinds = [kind_of(ordered, s, of) for s in ordered.stages]
    firsts, lasts = (tuple(k for k, kind in enumerate(kinds) if kind == wanted) for wanted in (GIVES, WEIGHS))
    return _Finder(ordered, firsts, lasts).found() if firsts and lasts else None


def _plain(view: KernelView) -> bool:
    """No data among the subscripts, nothing stored and read again, and every own buffer a cell, or walked by loops that alone subscript it."""
    direct = all(not u.extent and not is_indirect(s, u) for s in view.stages for u in s.uses)
    own = [u for u in view.uses if view.is_local(u.buffer)]
    walked = all(f.is_const or f == Affine.var(f.names[0]) for u in own for f in u.forms)
    # Items share rows: what one of them stores, another one would read.
    apart = view.writes().isdisjoint(view.reads())
    return direct and walked and apart and not any(s.guard for s in view.stages)


@dataclass
class _Finder:
    view: KernelView
    firsts: tuple[int, ...]
    lasts: tuple[int, ...]
    wide: dict[str, int] = field(default_factory=dict[str, int])
    pieces: dict[int, str] = field(default_factory=dict[int, str])

    def found(self) -> RowsInSteps | None:
        rows, results = ([c for c in map(self._cell, ks) if c is not None] for ks in (self.firsts, self.lasts))
        if len(rows) < len(self.firsts) or len(results) < len(self.lasts):
            return None
        self.wide.update(rows)
        # Twice: what starts a buffer stands before the stage that shows how it is walked.
        every = [*range(len(self.view.stages))] * 2
        if not all(map(self._walks, every)) or any(b in self.wide for b, _ in results):
            return None
        self.pieces = dict(sorted(self.pieces.items()))
        columns, across = self._along(dict(results))
        samples = self._samples()
        carried = [c for c in dict.fromkeys(self._carried()) if c[0] not in (samples or ())]
        if samples is None or not all(self.view.is_local(b) for b, _ in carried):
            return None
        largest = [b for b, agg in carried if agg is Aggregation.MAX]
        sums = tuple(b for b, agg in carried if agg is Aggregation.SUM)
        made = tuple(b for b, _ in results)
        known = len(largest) == 1 or (not largest and {*sums} == {*made})
        apart = len({*made}) == len(made) and all(k in columns and k in self.pieces for k in self.lasts)
        if not known or not apart or len(carried) != len(sums) + len(largest) or not {*made} <= {*sums}:
            return None
        kinds = RowsInSteps(
            self.view, self.firsts, self.lasts, self.pieces, columns, across, self.wide, made, "".join(largest), sums,
            totals=tuple(dict.fromkeys(self._totals({*columns} - {*self.pieces}))), samples=samples,
        )  # fmt: skip
        proved = _proved(kinds) if largest else _given(kinds)
        return None if proved is None else _met(proved)

    def _samples(self) -> tuple[str, ...] | None:
        """What stages merge of the first few elements of a row; None where one does something else with these."""
        ranges, found = self.view.ranges, list[str]()
        for k in (k for k, name in self.pieces.items() if ranges[name] != ranges[self.pieces[self.firsts[0]]]):
            use = merged_use(self.view.stages[k])
            if use is None or not self.view.is_local(use.buffer):
                return None
            found.append(use.buffer)
        written = [u.buffer for k in self.pieces for u in self.view.stages[k].uses if u.writes]
        return tuple(found) if all(written.count(b) == 1 for b in found) else None

    def _totals(self, stages: Set[int]) -> Iterator[str]:
        """What these sum up, for each row a number."""
        for use in (merged_use(self.view.stages[k]) for k in stages):
            if use is not None and use.agg is Aggregation.SUM and self.view.is_local(use.buffer):
                yield use.buffer

    def _cell(self, number: int) -> tuple[str, int] | None:
        """The own buffer that a product merges into, and its one dimension that moves: of others it has one element.

        Where it has more, results stand at one place among zeros, which nobody would store.
        """
        use = merged_use(self.view.stages[number])
        if use is None or not self.view.is_local(use.buffer):
            return None
        dims = [d for d, f in enumerate(use.forms) if f.names]
        own = prod(size for d, size in enumerate(self.view.type_of(use.buffer).sizes) if d not in dims)
        return (use.buffer, dims[0]) if len(dims) == 1 and own == 1 else None

    def _walks(self, number: int) -> bool:
        """Learn by which loop the stage walks rows, and which buffers it fills along them; False where it mixes elements."""
        stage = self.view.stages[number]
        used = [u for u in stage.uses if u.buffer in self.wide]
        names = {n for u in used for n in u.forms[self.wide[u.buffer]].names}
        if not used:
            return True
        (name, *more) = (*names, "")[:2] if names else ("", "")
        if not names or any(more) or name not in stage.loop_names:
            return False
        self.pieces[number] = name
        for use in (u for u in stage.uses if u.writes or self.view.is_local(u.buffer)):
            dims = [d for d, f in enumerate(use.forms) if name in f.names]
            if dims and self.wide.setdefault(use.buffer, dims[0]) != dims[0]:
                return False
            if dims and not self.view.is_local(use.buffer):
                return False
        return True

    def _along(self, results: dict[str, int]) -> tuple[dict[int, str], dict[str, int]]:
        """The stages that go over results, by which loop, and the own buffers that hold them, of which product."""
        found, across = dict[int, str](), {**results}
        makers = {u.buffer: k for k in self.lasts for u in self.view.stages[k].uses if u.buffer in results}
        for k, stage in enumerate(self.view.stages):
            moved = [u.forms[across[u.buffer]] for u in stage.uses if u.buffer in across]
            names = names_in(moved)
            if len(names) != 1:
                continue
            (found[k],) = names
            maker = next(makers[u.buffer] for u in stage.uses if u.buffer in across)
            for use in (u for u in stage.uses if u.writes and self.view.is_local(u.buffer)):
                across.update((use.buffer, d) for d, form in enumerate(use.forms) if names & {*form.names})
                makers[use.buffer] = maker
        return found, {b: makers[b] for b in across}

    def _carried(self) -> Iterator[tuple[str, Aggregation]]:
        """What stages that walk rows write and rows do not move."""
        for k in self.pieces:
            for use in (u for u in self.view.stages[k].uses if u.writes and u.buffer not in self.wide):
                yield use.buffer, use.agg or Aggregation.ASSIGN


def _met(kinds: RowsInSteps) -> RowsInSteps:
    """Results that stages take together are walked by loops of one name."""
    names = dict[str, str]()
    for k in kinds.columns.keys() - {*kinds.lasts}:
        used = {kinds.across[u.buffer]: None for u in kinds.view.stages[k].uses if u.buffer in kinds.across}
        first, *others = (kinds.columns[last] for last in used)
        names |= dict.fromkeys(others, first)
    if not names:
        return kinds
    stages = tuple(s.renamed(names) if k in kinds.lasts else s for k, s in enumerate(kinds.view.stages))
    columns = {k: names.get(n, n) if k in kinds.lasts else n for k, n in kinds.columns.items()}
    return replace(kinds, view=replace(kinds.view, stages=stages), columns=columns)


# --- what proves it -----------------------------------------------------------------------------------


def _proved(kinds: RowsInSteps) -> RowsInSteps | None:
    """Every sum is linear in exponentials below the largest element, and nothing else within a piece asks for either."""
    carried, sums = {kinds.largest, *kinds.sums}, set(kinds.sums)
    weights: set[str] = set()
    instead: set[float | None] = set()
    for k in kinds.pieces:
        stage = kinds.view.stages[k]
        reads = {u.buffer for u in stage.uses if u.reads and not u.writes}
        written = {u.buffer for u in stage.uses if u.writes}
        if written & {*kinds.samples}:
            if reads & (carried | weights):
                return None
        elif reads & carried:
            known = reads & carried == {kinds.largest} and not reads & weights and not written & carried
            pivot = _pivot(kinds, k) if known and len(written) == 1 else None
            if pivot is None:
                return None
            weights |= written
            instead.add(pivot.instead)
        elif reads & weights and _is_weight(kinds, stage, weights):
            weights |= written
        elif (reads & weights or written & sums) and not _adds(stage, written & sums, weights):
            return None
    if len(instead) != 1 or not (_starts_empty(kinds) and _is_in_order(kinds) and _rest_apart(kinds)):
        return None
    return replace(kinds, instead=instead.pop())


def _given(kinds: RowsInSteps) -> RowsInSteps | None:
    """Nothing within a piece asks for the sum, and what is summed is weighed by exponentials."""
    others = [kinds.view.stages[k] for k in kinds.pieces if k not in kinds.lasts]
    asks = any(u.buffer in kinds.results for stage in others for u in stage.uses)
    weighs = any(isinstance(s, Op) and s.name == "exp" for stage in others for s in stage.body)
    return None if asks or not weighs or not (_is_in_order(kinds) and _rest_apart(kinds)) else kinds


def _adds(stage: Stage, sums: Set[str], weights: Set[str]) -> bool:
    """It merges into one sum, and does nothing else."""
    written = {u.buffer for u in stage.uses if u.writes}
    return written == sums and len(sums) == 1 and _is_linear(stage, weights)


def _is_weight(kinds: RowsInSteps, stage: Stage, weights: Set[str]) -> bool:
    """It fills a row with weights times something, element by element."""
    written = [u.buffer for u in stage.uses if u.writes]
    return is_elementwise(stage) and len(written) == 1 and written[0] in kinds.wide and _is_linear(stage, weights)


def _starts_empty(kinds: RowsInSteps) -> bool:
    """Every sum starts with 0: there is nothing in it that is not below the largest element so far."""
    started: set[str] = set()
    for k, stage in enumerate(kinds.view.stages):
        if kinds.before(k):
            zeros = {s.dst for s in stage.body if isinstance(s, Const) and s.value == 0}
            started |= {stage.use(s.dst).buffer for s in stage.body if isinstance(s, Store) and s.src in zeros}
    return started >= set(kinds.sums)


def _is_in_order(kinds: RowsInSteps) -> bool:
    """What starts a sum comes before the pieces that go on with it, and what uses it after all of them."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for k in kinds.pieces:
        for use in kinds.view.stages[k].uses:
            first.setdefault(use.buffer, k)
            last[use.buffer] = k
    for buffer in (kinds.largest, *kinds.sums, *kinds.samples):
        for k, stage in enumerate(kinds.view.stages):
            if k in kinds.pieces or kinds.of_samples(k) or not any(u.buffer == buffer for u in stage.uses):
                continue
            if not (k < first[buffer] if kinds.before(k) else k > last[buffer]):
                return False
    return True


def _rest_apart(kinds: RowsInSteps) -> bool:
    """What neither starts nor walks rows ends them: it makes nothing that pieces read, and goes over each element by itself, or sums."""
    read = {u.buffer for k in kinds.pieces for u in kinds.view.stages[k].uses}
    ends = [s for k, s in enumerate(kinds.view.stages) if k not in kinds.pieces and not kinds.before(k)]
    alone = (is_elementwise(s) or any(u.writes and u.buffer in kinds.totals for u in s.uses) for s in ends)
    return all(alone) and not any(u.writes and u.buffer in read for s in ends for u in s.uses)


@dataclass(frozen=True, slots=True)
class _Pivot:
    """What is subtracted in front of an exponential: an element, or another number where that is -inf."""

    element: Load
    instead: float | None = None


def _pivot(kinds: RowsInSteps, number: int) -> _Pivot | None:
    """The p of a stage that stores ``exp(x - p)``, of the x that the largest is taken of: no piece makes more than 1 of it."""
    body = Scalars(kinds, number)
    exp = body.made.get(body.stored)
    below = body.made.get(body.plain(exp.args[0])) if isinstance(exp, Op) and exp.name == "exp" else None
    if not (isinstance(below, Op) and below.name == "sub"):
        return None
    pivot = _element_or_number(body, below.args[1])
    taken = (Scalars(kinds, k) for k in kinds.pieces if merges_into(kinds.view.stages[k], kinds.largest))
    alike = all(other.value(other.stored) == body.value(below.args[0]) for other in taken)
    return pivot if alike and pivot and body.stage.use(pivot.element.src).buffer == kinds.largest else None


def _element_or_number(body: Scalars, name: str) -> _Pivot | None:
    """``m``, or ``m == -inf ? number : m``."""
    match body.node(name):
        case Load() as element:
            return _Pivot(element)
        case Op(name="cond", args=(condition, number, kept)):
            test, other, element = body.node(condition), body.node(number), body.node(kept)
        case _:
            return None
    if not (isinstance(test, Op) and test.name == "cmp_eq" and isinstance(other, Const) and isinstance(element, Load)):
        return None
    tested, bound = map(body.node, test.args)
    lowest = isinstance(bound, Const) and bound.value == -inf and tested == element
    return _Pivot(element, float(other.value)) if lowest and isfinite(other.value) else None


def merges_into(stage: Stage, buffer: str) -> bool:
    use = merged_use(stage)
    return use is not None and use.buffer == buffer


Value = tuple[object, ...]
"""A scalar as an expression of what stages load."""


class Scalars:
    """The scalars of a stage that walks rows."""

    def __init__(self, kinds: RowsInSteps, number: int) -> None:
        self.kinds, self.stage = kinds, kinds.view.stages[number]
        self.place = {kinds.pieces[number]: Affine.var(kinds.row)}
        self.made = {s.dst: s for s in self.stage.body if isinstance(s, Load | Op | Const | LoadIndex)}
        stores = [s.src for s in self.stage.body if isinstance(s, Store)]
        self.stored = self.plain(stores[0]) if len(stores) == 1 else ""

    def plain(self, name: str) -> str:
        """The scalar that conversions to wider floats start from."""
        return _unwidened(self.made, name)

    def node(self, name: str) -> Scalar | None:
        """What makes it, conversions to wider floats left out."""
        return self.made.get(self.plain(name))

    def value(self, name: str) -> Value:
        """What it is, in terms that do not depend on names."""
        match self.made.get(self.plain(name)):
            case Load(src=src):
                return self._loaded(self.stage.use(src))
            case Op(name=name, args=args, dtype=dtype):
                return name, dtype, *map(self.value, args)
            case Const(value=value, dtype=dtype):
                return value, dtype
            case LoadIndex(value=form, dtype=dtype) if isinstance(form, Affine):
                return form.substitute(self.place), dtype
            case other:
                return (other,)

    def _loaded(self, use: Use) -> Value:
        """An element; of a row that one stage fills element by element, what that stores."""
        makers = [
            k for k, s in enumerate(self.kinds.view.stages) if any(u.writes and u.buffer == use.buffer for u in s.uses)
        ]
        if use.buffer in self.kinds.wide and len(makers) == 1 and is_elementwise(self.kinds.view.stages[makers[0]]):
            maker = Scalars(self.kinds, makers[0])
            return maker.value(maker.stored)
        return use.buffer, *(f.substitute(self.place) for f in use.forms)


def _is_linear(stage: Stage, weights: Set[str]) -> bool:
    """What it merges is a weight, or its product with what no weight is in."""
    made: dict[str, Scalar] = {s.dst: s for s in stage.body if isinstance(s, Load | Op | Const | LoadIndex)}
    heavy = {s.dst for s in stage.body if isinstance(s, Load) and stage.use(s.src).buffer in weights}
    (store,) = (s for s in stage.body if isinstance(s, Store))
    name = _unwidened(made, store.src)
    while name not in heavy:
        node = made.get(name)
        sides = (
            [a for a in node.args if heavy & scalars_behind(a, made)]
            if isinstance(node, Op) and node.name == "mul"
            else []
        )
        if len(sides) != 1:
            return False
        name = _unwidened(made, sides[0])
    return True


def _unwidened(made: Mapping[str, Scalar], name: str) -> str:
    """The scalar that conversions to other floats start from."""
    node = made.get(name)
    while isinstance(node, Op) and node.name in ("cast", "ident") and node.dtype.is_float:
        name = node.args[0]
        node = made.get(name)
    return name


def shared_by(use: Use, view: KernelView) -> frozenset[str]:
    """The shared loops that do not move an operand."""
    moved = names_in(use.forms)
    return frozenset(i.name for i in view.loops if i.name not in moved)
