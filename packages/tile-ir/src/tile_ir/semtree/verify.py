"""Structural rules of semtree, one named error per rule (`tile_ir.semtree.errors`).

`verify` runs after every pass and before every emitter; it needs no target beyond the set of
optional nodes that the target takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tile_ir.dots import DOTS, WORD
from tile_ir.dtype import DType
from tile_ir.emit.walker import blocks, children, walk_expr
from tile_ir.matrix.x86 import STORE_TILE
from tile_ir.ops import OPS, Aggregation, Signature
from tile_ir.semtree import errors as err
from tile_ir.semtree.nodes import (
    Access,
    Alloc,
    Assign,
    AsyncCopy,
    AsyncWait,
    Atomic,
    Barrier,
    Binary,
    Bitcast,
    Block,
    Call,
    CallFn,
    Cast,
    Comment,
    Compare,
    Const,
    Expr,
    Extract,
    Fma,
    For,
    Function,
    If,
    Insert,
    Iota,
    LastGroup,
    Let,
    Limit,
    Load,
    MatrixLoad,
    Mma,
    Param,
    ReduceLanes,
    Return,
    Round,
    Select,
    Shuffle,
    Space,
    Splat,
    Statement,
    Store,
    SubgroupOp,
    TeamMma,
    TensorCopy,
    TileStep,
    Type,
    Unary,
    Var,
    While,
    WorkId,
)  # fmt: skip
from tile_ir.semtree.typing import INDEX_DTYPES, is_memory, natural_type
from tile_ir.semtree.uniformity import divergent_barriers
from tile_ir.semtree.verify_common import check_access, check_align, check_equal, check_index, fail
from tile_ir.semtree.verify_matrix import matrix_load, mma, needs_lanes, round_bits, team_mma, tensor_copy, tile_step

_CORE = "Const Var Load Store Unary Binary Compare Select Cast Call Limit WorkId Let Assign Alloc For If Block Comment"
CALLED = (Signature.MATH, Signature.DOT)
"""Operations that are functions of a `Call`."""
CORE_NODES: frozenset[str] = frozenset(_CORE.split())
"""Nodes that every backend takes."""
_FUNCTIONS = "exp log sqrt sin cos tan asin acos atan sinh cosh tanh ceil floor round recip pow"
CORE_FUNCTIONS: frozenset[str] = frozenset(_FUNCTIONS.split())
"""Functions of a `Call` that every backend takes."""
OPTIONAL_FUNCTIONS: frozenset[str] = (
    frozenset(name for name, op in OPS.items() if op.signature is Signature.MATH) - CORE_FUNCTIONS
)
"""Functions of floats that a target lists by name beside its nodes, or that are rewritten away."""
LISTED_FUNCTIONS: frozenset[str] = OPTIONAL_FUNCTIONS.union(DOTS)
"""These and the dot products of words, which are listed likewise."""
OPTIONAL_NODES: frozenset[str] = (
    frozenset(cls.__name__ for cls in (*Expr.__args__, *Statement.__args__)) - CORE_NODES | LISTED_FUNCTIONS
)
"""Nodes and functions that a target lists in `Target.nodes`, or that are rewritten away."""
SUBGROUP_OPS: dict[str, int] = {
    "reduce_add": 1, "reduce_mul": 1, "reduce_max": 1, "reduce_min": 1,
    "broadcast": 2, "shuffle": 2, "shuffle_xor": 2, "shuffle_up": 2, "shuffle_down": 2,
}  # fmt: skip
"""Collectives and their number of operands; the second operand is a lane, a mask or a distance (int32)."""
SCOPES = ("group", "subgroup")
FENCES = ("local", "global", "all", "none")

_BOOL = Type(DType.BOOL)


def verify(function: Function, nodes: frozenset[str] | None = None) -> None:
    """Raise the `SemtreeError` of the first broken rule; with `nodes`, also for optional nodes not in it."""
    _Verifier(nodes, {}, function.subgroup).function(function, helper=False)


class _Verifier:
    def __init__(self, nodes: frozenset[str] | None, helpers: dict[str, Function], subgroup: int) -> None:
        self._subgroup = subgroup
        self._allowed = None if nodes is None else nodes | CORE_NODES
        self._nodes = nodes
        self._helpers = helpers
        self._scopes: list[dict[str, Let | Alloc | Param | For]] = [{}]

    def function(self, function: Function, helper: bool) -> None:
        for inner in function.helpers:
            if inner.name in self._helpers:
                fail(err.RedeclaredName, f"two helpers are named {inner.name!r}")
            _Verifier(self._nodes, dict(self._helpers), self._subgroup).function(inner, helper=True)
            self._helpers = {**self._helpers, inner.name: inner}
        self._signature(function, helper)
        self._body(function.body)
        for statement in divergent_barriers(function):
            fail(err.DivergentBarrier, f"{function.name}: threads may disagree about {type(statement).__name__}")

    def _signature(self, function: Function, helper: bool) -> None:
        if len(function.group_size) != 3 or min(function.group_size) < 1 or function.subgroup < 0:
            fail(err.SignatureError, f"{function.name} has work groups of {function.group_size}")
        for param in function.params:
            if not helper and not param.type.ptr:
                fail(err.SignatureError, f"parameter {param.name!r} of a kernel is a pointer")
            if param.elements < 0:
                fail(err.SignatureError, f"parameter {param.name!r} has {param.elements} elements")
            check_align(param.align)
            self._declare(param.name, param)
        for param in function.params:
            if param.alias_of is not None and param.alias_of not in self._scopes[0]:
                fail(
                    err.SignatureError, f"parameter {param.name!r} may alias {param.alias_of!r}, which is no parameter"
                )

    # --- scopes

    def _declare(self, name: str, what: Let | Alloc | Param | For) -> None:
        if name in self._scopes[-1]:
            fail(err.RedeclaredName, f"{name!r} is declared twice in one scope")
        self._scopes[-1][name] = what

    def _find(self, name: str) -> Let | Alloc | Param | For:
        found = next((scope[name] for scope in reversed(self._scopes) if name in scope), None)
        if found is None:
            fail(err.UndeclaredName, f"{name!r} is not declared here")
        return found

    # --- statements

    def _body(self, body: Block) -> None:
        stack: list[Statement | For | None] = [body]
        while stack:
            item = stack.pop()
            if item is None:
                self._scopes.pop()
                continue
            self._statement(item)
            parts = blocks(item)
            if isinstance(item, Block):
                self._scopes.append({})
                stack += [None, *reversed(item.body)]
            elif isinstance(item, For):
                self._scopes.append({item.var: item})
                stack += [None, item.body]
            else:
                stack.extend(reversed(parts))

    def _statement(self, statement: Statement) -> None:
        self._allow(statement)
        for expr in walk_expr(*children(statement)):
            self._expression(expr)
        _STATEMENT_RULES[type(statement)](self, statement)

    def _allow(self, node: Expr | Statement) -> None:
        name = node.name if isinstance(node, Call) and node.name in LISTED_FUNCTIONS else type(node).__name__
        if self._allowed is not None and name not in self._allowed:
            fail(err.NodeNotAllowed, f"the target does not take {name}")

    def _expression(self, expr: Expr) -> None:
        self._allow(expr)
        if expr.type.lanes < 1:
            fail(err.LaneError, f"{expr.type.lanes} lanes", expr)
        if isinstance(expr, Var):
            self._variable(expr)
            return
        if is_memory(expr.type):
            fail(err.PointerExpected, "only variables are pointers or arrays", expr)
        _EXPRESSION_RULES[type(expr)](expr)
        needs_lanes(expr, self._subgroup)
        natural = natural_type(expr)
        if isinstance(expr, (Load, WorkId, Mma)) or natural is None:
            return
        if natural != expr.type:
            fail(err.TypeMismatch, f"its operands make it {natural}, it says {expr.type}", expr)

    def _variable(self, expr: Var) -> None:
        declared = self._find(expr.name)
        t = declared.type if isinstance(declared, (Param, Alloc)) else _value_type(declared)
        decayed = Type(t.dtype, t.lanes, 0, t.space, True) if t.count else t
        if expr.type not in (t, decayed):
            fail(err.TypeMismatch, f"{expr.name!r} was declared as {t}, not {expr.type}")

    def let(self, node: Let) -> None:
        if is_memory(node.value.type):
            fail(err.PointerExpected, f"variable {node.name!r} cannot hold a pointer", node.value)
        self._declare(node.name, node)

    def assign(self, node: Assign) -> None:
        declared = self._find(node.name)
        if not isinstance(declared, Let) or not declared.mutable:
            fail(err.ImmutableAssignment, f"{node.name!r} is not a mutable variable")
        if declared.value.type != node.value.type:
            fail(err.TypeMismatch, f"{node.name!r} is {declared.value.type}, not {node.value.type}", node.value)

    def team_product(self, node: TeamMma) -> None:
        team_mma(node, self._subgroup)
        for target in node.c:
            declared = self._find(target.name) if isinstance(target, Var) else None
            if not isinstance(declared, Let) or not declared.mutable:
                fail(err.ImmutableAssignment, f"{node.instruction} adds to what is no mutable variable", target)

    def last_group(self, node: LastGroup) -> None:
        declared = self._find(node.flag.name) if isinstance(node.flag, Var) else None
        if node.flag.type != _BOOL or not isinstance(declared, Let) or not declared.mutable:
            fail(err.ImmutableAssignment, "whether a group is the last is no mutable bool variable", node.flag)
        check_index(node.which)
        if node.count < 1:
            fail(err.UnknownOperation, f"the last of {node.count} groups")

    def alloc(self, node: Alloc) -> None:
        t = node.type
        if t.count < 1 or t.ptr or t.space not in (Space.PRIVATE, Space.LOCAL):
            fail(err.AllocationError, f"array {node.name!r} cannot be {t}")
        check_align(node.align)
        self._declare(node.name, node)

    def store(self, node: Store) -> None:
        check_access(node.ptr, node.index, node.value.type, node.mask, node.align, node)
        self.written(node.ptr)
        if node.hint not in ("", "streaming", "prefetch"):
            fail(err.UnknownOperation, f"a store has no hint {node.hint!r}")

    def atomic(self, node: Atomic) -> None:
        check_access(node.ptr, node.index, node.value.type, None, 0, node)
        if node.value.type.lanes != 1:
            fail(err.LaneError, "an atomic works on scalars", node.value)
        self.written(node.ptr)

    def async_copy(self, node: AsyncCopy) -> None:
        for ptr, index in ((node.dst, node.dst_index), (node.src, node.src_index)):
            check_access(ptr, index, Type(node.src.type.dtype, ptr.type.lanes), None, node.align, node)
        if node.dst.type.space is not Space.LOCAL or node.count < 1:
            fail(err.AllocationError, f"an asynchronous copy of {node.count} elements fills local memory")
        if node.guard is not None and node.guard.type != _BOOL:
            fail(err.MaskMismatch, "a guard is one bool", node.guard)
        if node.fill and node.guard is None:
            fail(err.MaskMismatch, "a copy that fills with zeros has a guard")
        self.written(node.dst)

    def tensor_copy(self, node: TensorCopy) -> None:
        tensor_copy(node)
        self.written(node.dst)

    def tile_step(self, node: TileStep) -> None:
        tile_step(node)
        if node.ptr is not None and node.name == STORE_TILE:
            self.written(node.ptr)

    def written(self, ptr: Expr) -> None:
        declared = self._find(ptr.name) if isinstance(ptr, Var) else None
        constant = ptr.type.space is Space.CONST
        if constant or (isinstance(declared, Param) and declared.access is Access.READ):
            fail(err.AccessViolation, "read-only memory is written", ptr)

    def call_helper(self, node: CallFn) -> None:
        helper = self._helpers.get(node.name)
        if helper is None:
            fail(err.HelperError, f"no helper is named {node.name!r}")
        types = [(p.type, a.type) for p, a in zip(helper.params, node.args, strict=False)]
        if len(helper.params) != len(node.args) or any(not _fits(p, a) for p, a in types):
            fail(err.HelperError, f"the arguments do not fit helper {node.name!r}", *node.args)
        for param, arg in zip(helper.params, node.args, strict=True):
            if param.type.ptr and param.access is not Access.READ:
                self.written(arg)


def _value_type(declared: Let | For) -> Type:
    return declared.start.type if isinstance(declared, For) else declared.value.type


def _fits(param: Type, arg: Type) -> bool:
    return arg == param or (param.ptr and is_memory(arg) and Type(arg.dtype, arg.lanes, 0, arg.space, True) == param)


# --- rules of statements -----------------------------------------------------------------------------


def _for(_: _Verifier, node: For) -> None:
    check_index(node.start)
    if node.stop.type != node.start.type:
        fail(err.LoopError, f"the bounds of loop {node.var!r} differ in type", node.start, node.stop)
    if node.step < 1:
        fail(err.LoopError, f"loop {node.var!r} has step {node.step}")


def _condition(_: _Verifier, node: If | While) -> None:
    if node.cond.type != _BOOL:
        fail(err.MaskMismatch, f"a condition is one bool, not {node.cond.type}", node.cond)


def _barrier(_: _Verifier, node: Barrier) -> None:
    if node.scope not in SCOPES or node.fence not in FENCES:
        fail(err.UnknownOperation, f"no barrier has scope {node.scope!r} and fence {node.fence!r}")


def _wait(_: _Verifier, node: AsyncWait) -> None:
    if node.pending < 0:
        fail(err.UnknownOperation, f"a wait cannot leave {node.pending} copies pending")


def _nothing(_: _Verifier, node: Statement) -> None:
    pass


_STATEMENT_RULES: dict[type, Callable[[_Verifier, Any], None]] = {
    TeamMma: _Verifier.team_product, TensorCopy: _Verifier.tensor_copy,
    Let: _Verifier.let, Assign: _Verifier.assign, Alloc: _Verifier.alloc, Store: _Verifier.store,
    Atomic: _Verifier.atomic, AsyncCopy: _Verifier.async_copy, AsyncWait: _wait, TileStep: _Verifier.tile_step, CallFn: _Verifier.call_helper,
    For: _for, If: _condition, While: _condition, Barrier: _barrier, LastGroup: _Verifier.last_group,
    Block: _nothing, Comment: _nothing, Return: _nothing,
}  # fmt: skip


# --- rules of expressions ----------------------------------------------------------------------------


def _const(e: Const) -> None:
    whole = isinstance(e.value, int)
    low, high = e.type.dtype.min_value, e.type.dtype.max_value
    if not e.type.dtype.is_float and not (whole and low <= e.value <= high):
        fail(err.LiteralError, f"{e.value!r} is no {e.type.dtype}")


def _load(e: Load) -> None:
    check_access(e.ptr, e.index, e.type, e.mask, e.align, e)


def _bits_ok(t: Type) -> bool:
    return not t.dtype.is_float


def _unary(e: Unary) -> None:
    if e.op not in ("neg", "abs", "bit_not"):
        fail(err.UnknownOperation, f"no unary operator {e.op!r}")
    if e.op == "bit_not" and not _bits_ok(e.type):
        fail(err.IllegalDtype, f"bit_not of {e.type}", e)


_SAME_OPS = frozenset(["add", "sub", "mul", "div", "max", "min"])
_BIT_OPS = frozenset(["bit_and", "bit_or", "bit_xor"])
_SHIFT_OPS = frozenset(["bit_left", "bit_right"])


def _binary(e: Binary) -> None:
    if e.op not in _SAME_OPS | _BIT_OPS | _SHIFT_OPS | {"mod"}:
        fail(err.UnknownOperation, f"no binary operator {e.op!r}")
    if e.op in _SHIFT_OPS:
        if e.left.type.lanes != e.right.type.lanes or not e.right.type.dtype.is_integer or not _bits_ok(e.left.type):
            fail(err.IllegalDtype, f"a shift of {e.left.type} by {e.right.type}", e)
        return
    check_equal((e.left, e.right), e)
    if e.op in _BIT_OPS and not _bits_ok(e.left.type):
        fail(err.IllegalDtype, f"{e.op} of {e.left.type}", e)
    if e.op == "mod" and e.left.type.dtype not in INDEX_DTYPES:
        fail(err.IllegalDtype, f"mod of {e.left.type}", e)


def _compare(e: Compare) -> None:
    if e.op not in OPS or OPS[e.op].signature is not Signature.COMPARE:
        fail(err.UnknownOperation, f"no comparison {e.op!r}")
    check_equal((e.left, e.right), e)


def _fma(e: Fma) -> None:
    check_equal((e.a, e.b, e.c), e)
    if not e.type.dtype.is_float:
        fail(err.IllegalDtype, f"fma of {e.type}", e)


def _select(e: Select) -> None:
    check_equal((e.then, e.other), e)
    if e.cond.type != Type(DType.BOOL, e.then.type.lanes):
        fail(err.MaskMismatch, f"{e.cond.type} selects between {e.then.type}", e)


def _cast(e: Cast) -> None:
    if is_memory(e.value.type) or e.value.type.lanes != e.type.lanes:
        fail(err.IllegalCast, f"{e.value.type} cannot become {e.type}", e)


def _bitcast(e: Bitcast) -> None:
    source, target = e.value.type, e.type
    if is_memory(source) or source.lanes != target.lanes or source.dtype.bits != target.dtype.bits:
        fail(err.IllegalCast, f"the bits of {source} cannot be those of {target}", e)
    if DType.BOOL in (source.dtype, target.dtype):
        fail(err.IllegalCast, "bool has no bits", e)


def _call(e: Call) -> None:
    op = OPS.get(e.name)
    if op is None or op.signature not in CALLED or op.arity != len(e.args):
        fail(err.UnknownOperation, f"no function {e.name!r} of {len(e.args)} arguments")
    if op.signature is Signature.DOT:
        _dot(e)
        return
    check_equal(e.args, e)
    if not e.type.dtype.is_float:
        fail(err.IllegalDtype, f"{e.name} of {e.type}", e)


def _dot(e: Call) -> None:
    *words, total = (arg.type for arg in e.args)
    if e.type.dtype is not DOTS[e.name].c or any(w.dtype is not WORD for w in words):
        fail(err.IllegalDtype, f"{e.name} of {e.type}", e)
    if total != e.type or any(is_memory(w) or w.lanes != e.type.lanes for w in words):
        fail(err.TypeMismatch, f"{e.name} of {', '.join(str(a.type) for a in e.args)}", e)


def _splat(e: Splat) -> None:
    if e.value.type != e.type.scalar:
        fail(err.TypeMismatch, f"{e.value.type} cannot fill {e.type}", e)


def _extract(e: Extract | Insert) -> None:
    if not 0 <= e.lane < e.vector.type.lanes:
        fail(err.LaneError, f"lane {e.lane} of {e.vector.type}", e)
    if isinstance(e, Insert) and e.value.type != e.vector.type.scalar:
        fail(err.TypeMismatch, f"{e.value.type} cannot enter {e.vector.type}", e)


def _shuffle(e: Shuffle) -> None:
    check_equal((e.left, e.right), e)
    total = 2 * e.left.type.lanes
    if not e.lanes or any(not 0 <= lane < total for lane in e.lanes):
        fail(err.LaneError, f"lanes {e.lanes} of two {e.left.type}", e)


def _reduce(e: ReduceLanes) -> None:
    lanes = e.value.type.lanes
    if lanes & (lanes - 1):
        fail(err.LaneError, f"{lanes} lanes do not halve down to one", e)
    if e.agg is Aggregation.ASSIGN:
        fail(err.UnknownOperation, "lanes cannot be combined by assign", e)


def _iota(e: Iota) -> None:
    if not e.type.dtype.is_integer or e.type.lanes - 1 > e.type.dtype.max_value:
        fail(err.IllegalDtype, f"iota of {e.type}", e)


def _limit(e: Limit) -> None:
    if e.which not in ("min", "max"):
        fail(err.UnknownOperation, f"no limit {e.which!r}")


def _work_id(e: WorkId) -> None:
    if not 0 <= e.axis < 3:
        fail(err.AxisError, f"axis {e.axis}", e)
    if e.type.dtype not in INDEX_DTYPES or e.type != e.type.scalar:
        fail(err.TypeMismatch, f"a work-item number is int32 or int64, not {e.type}", e)


def _subgroup(e: SubgroupOp) -> None:
    if SUBGROUP_OPS.get(e.op) != len(e.args):
        fail(err.UnknownOperation, f"no collective {e.op!r} of {len(e.args)} arguments")
    for selector in e.args[1:]:
        check_index(selector)


_EXPRESSION_RULES: dict[type, Callable[[Any], None]] = {
    Const: _const, Load: _load, Unary: _unary, Binary: _binary, Compare: _compare, Fma: _fma, Select: _select,
    Cast: _cast, Bitcast: _bitcast, Call: _call, Splat: _splat, Extract: _extract, Insert: _extract, Shuffle: _shuffle, Iota: _iota,
    ReduceLanes: _reduce, Limit: _limit, WorkId: _work_id, SubgroupOp: _subgroup, Round: round_bits,
    MatrixLoad: matrix_load, Mma: mma,
}  # fmt: skip
