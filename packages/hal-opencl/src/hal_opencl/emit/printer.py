"""Semtree as OpenCL C 1.2, one function after another."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.dtype import DType
from tile_ir.emit.clike import Close, Item
from tile_ir.emit.pieces import ADDITIVE, POSTFIX
from tile_ir.matrix import LANES, MATRIX_INSTRUCTIONS, MatrixInstruction
from tile_ir.ops import Aggregation
from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.nodes import (
    PRODUCTS,
    Alloc,
    Assign,
    AsyncCopy,
    AsyncWait,
    Atomic,
    Barrier,
    Binary,
    Block,
    CallFn,
    Cast,
    Comment,
    Expr,
    For,
    Function,
    LastGroup,
    Let,
    Space,
    Statement,
    Store,
    TeamMma,
    TensorCopy,
    Type,
    Var,
)  # fmt: skip

from hal_opencl.emit import arrivals, dpas, helpers, ptx, teams
from hal_opencl.emit.arrays import arrays_of, local_arrays
from hal_opencl.emit.arrivals import arrives, last_arrives
from hal_opencl.emit.boxes import BoxStatements
from hal_opencl.emit.completion import COMPLETED, completed
from hal_opencl.emit.copies import asynchronous_bytes, copy_groups, each_is_awaited, ending, sums_of_teams
from hal_opencl.emit.held import held
from hal_opencl.emit.matrix import CONTRACTED, multiplies
from hal_opencl.emit.registers import STATED, groups_of_core
from hal_opencl.emit.serpentine import LaneAssign
from hal_opencl.emit.types import MEMORY, bits, comment_text, safe_hint, tag, unsigned
from hal_opencl.emit.waiting import waiting

_FENCES = {"local": "CLK_LOCAL_MEM_FENCE", "global": "CLK_GLOBAL_MEM_FENCE", "none": "0"}
_ATOMICS = {
    (Aggregation.SUM, 32): "atomic_add",
    (Aggregation.MAX, 32): "atomic_max",
    (Aggregation.MIN, 32): "atomic_min",
    (Aggregation.SUM, 64): "atom_add",
}
"""OpenCL's own, by aggregation and bits of an integer."""

NOWHERE: tuple[tuple[int, ...], int] = (), 0
"""No lines."""


class OpenCLPrinter(BoxStatements):
    """The text of one kernel after its helpers; the functions of `preamble` belong in front of it."""

    size_attribute = STATED
    """How a kernel says what groups it has."""
    _copy_groups: frozenset[int]
    _constants: set[str]
    _rounded_from: dict[str, str]
    _last: str
    _product: tuple[tuple[int, ...], int] = NOWHERE
    """The lines of the latest product of a rounded factor and of copies that start behind it, and scopes around them; while only what
    the next one needs is behind these."""

    def signature(self, function: Function) -> str:
        name = self.declare_global(function.name)
        params = ", ".join(self.parameter(p) for p in function.params)
        if not self._kernel:
            return f"void {name}({params})"
        if arrives(function):
            self._arrivals = self.names.fresh("arrivals")
            params += f"{', ' if params else ''}volatile global uint* {self._arrivals}"
        size = ", ".join(map(str, function.group_size))
        self._intervals.group_size = function.group_size
        lanes = dpas.size_attribute(function.subgroup) if self._dialect.subgroup_products else ""
        return f"kernel {lanes}__attribute__(({self.size_attribute}({size})))\nvoid {name}({params})"

    def program(self, function: Function) -> str:
        """A kernel after its helpers."""
        self._held = held(function)
        function = completed(self._held.function, self._held.arrays)
        self._copy_groups, self._subgroup = copy_groups(function), function.subgroup
        self._rounded = self._dialect.ptx and self._dialect.reduced and multiplies(function)
        self._sums, self._multiplying = sums_of_teams(function), dict[str, Expr]()
        self._apart = each_is_awaited(function)
        self._packed = any(p.type.dtype is DType.FLOAT16 for p in function.params)
        return self.function(function)

    def function(self, function: Function) -> str:
        self._kernel = False
        helpers_text = [self.function(helper) for helper in function.helpers]
        self._kernel = True
        return "\n".join([*helpers_text, self._one(function)])

    def _one(self, function: Function) -> str:
        self._scopes.append({})
        self._lines, self._constants, self._rounded_from = [], set[str](), dict[str, str]()
        self._waiting = waiting(function)
        self.line(self.signature(function) + " {")
        self._depth += 1
        if self._rounded:
            self.line(CONTRACTED)
        self._declare_arrays(function)
        if self._kernel and last_arrives(function):
            self._last = self.names.fresh("is_last")
            self.line(f"local uint {self._last};")
        if self._kernel:
            self.describe_tensors(function)
            self._pairs = {name: self.names.fresh(name) for name in self._held.registers}
            for name in self._pairs.values():
                self.line(f"ushort2 {name} = 0;")
        groups = groups_of_core(function, self._held.straight) if self._kernel else 0
        if groups > 1:
            self.line(teams.resident(groups))
        self._depth -= 1
        self.body(function.body)
        self._scopes.pop()
        return "\n".join(self._lines) + "\n"

    def _declare_arrays(self, function: Function) -> None:
        """OpenCL C wants local arrays at the outermost scope of the kernel: where some share memory, one for all of them."""
        arrays = arrays_of(function)
        memory = self.names.fresh("memory") if arrays.shares(function) else ""
        if memory:
            self.line(f"local uchar {memory}[{arrays.nbytes}] __attribute__((aligned({arrays.align})));")
        for node in local_arrays(function):
            self._locals[id(node)] = text = self.names.fresh(safe_hint(node.name))
            part = f"local {self._element(node)}*"
            whole = f"{part} const {text} = ({part})({memory} + {arrays.places[id(node)]});"
            self.line(whole if memory else self._array(node, text))

    def write_tensorcopy(self, node: TensorCopy) -> None:
        self._behind_product()
        self.copy_box(node)

    def _array(self, node: Alloc, name: str) -> str:
        t = node.type
        space = f"{self.spaces[t.space]} " if self.spaces[t.space] else ""
        return f"{space}{self._element(node)} {name}[{max(1, t.count)}] __attribute__((aligned({max(node.align, t.dtype.bytes)})));"

    def _element(self, node: Alloc) -> str:
        element = "ushort" if node.type.dtype is DType.FLOAT16 else MEMORY[node.type.dtype]
        return element + (str(node.type.lanes) if node.type.lanes > 1 else "")

    def statement(self, statement: Statement) -> Sequence[Item]:
        self._intervals.forget()
        if not isinstance(statement, (TeamMma, Let, AsyncCopy, TensorCopy, Block)):
            self._product = NOWHERE
        return super().statement(statement)

    def write_alloc(self, node: Alloc) -> None:
        if node.type.space is Space.LOCAL:
            self._scopes[-1][node.name] = self._locals[id(node)]
        else:
            self.line(self._array(node, self.declare(node.name)))

    def write_let(self, node: Let) -> None:
        t = node.value.type
        if t.ptr:
            raise SemtreeError("OpenCL keeps no pointers in variables")
        if node.name in self._waiting:
            constant = "" if node.mutable else "const "
            self.line(
                f"{constant}{self._waits_as(t.lanes)} {self.declare(node.name)} = {self._as_in_memory(node.value)};"
            )
            return
        value, interval = self.expression(node.value), self._intervals.of(node.value, self.lookup)
        constant = "" if node.mutable else "const "
        name = self.declare(node.name)
        self.line(f"{constant}{self.type_name(t)} {name} = {value};")
        if not node.mutable:
            self._remember(name, node.value)
        if not node.mutable and interval is not None:
            self._intervals.known[name] = interval

    def _remember(self, name: str, value: Expr) -> None:
        """A constant, and of which other one it is the rounded value."""
        match value:
            case Cast(Var(source), t) if t.dtype is DType.FLOAT16 and value.value.type.dtype is DType.FLOAT32:
                if (before := self.lookup(source)) in self._constants:
                    self._rounded_from[name] = before
            case _:
                pass
        self._constants.add(name)

    def _to_be_rounded(self, value: Expr) -> str:
        """What a store of halves, which rounds, is given: compilers do not see that the value has been rounded."""
        text = self.expression(value)
        return self._rounded_from.get(text, text) if isinstance(value, Var) else text

    def write_assign(self, node: Assign) -> None:
        if node.name in self._waiting:
            self.line(f"{self.lookup(node.name)} = {self._as_in_memory(node.value)};")
        else:
            super().write_assign(node)

    def write_laneassign(self, node: LaneAssign) -> None:
        self.line(f"{self.lookup(node.name)}.s{node.lane:x} = {self.expression(node.value)};")

    def write_for(self, node: For) -> Sequence[Item]:
        interval = self._intervals.loop(node, self.lookup)
        if node.unroll in self.unrolls:
            self.line(self.unrolls[node.unroll])
        start, stop = self.expression(node.start), self.expression(node.stop, ADDITIVE)
        self._scopes.append({})
        name, t = self.declare(node.var), self.type_name(node.start.type)
        if interval is not None:
            self._intervals.known[name] = interval
        self.begin(f"for ({t} {name} = {start}; {name} < {stop}; {name} += {node.step}) {{")
        return [*node.body.body, Close(scopes=2)]

    def write_store(self, node: Store) -> None:
        t, ptr = node.value.type, node.ptr
        if id(node) in self._held.stores:
            self._held_store(node)
        elif node.mask is not None:
            self._masked_store(node)
        elif t.lanes == ptr.type.lanes and (t.lanes == 1 or not ptr.type.ptr):
            self._plain_store(node)
        else:
            self._vector_store(node)

    def _held_store(self, node: Store) -> None:
        """The bits of elements, to where the item has them."""
        name, first = self._held.stores[id(node)]
        lane = f".s{first}" if node.value.type.lanes == 1 else ""
        self.line(f"{self._pairs[name]}{lane} = {self._bits_of(node.value)};")

    def _plain_store(self, node: Store) -> None:
        t = node.value.type
        if isinstance(node.value, Var) and node.value.name in self._waiting:
            where = self.pieces(self._address(node.ptr, node.index))
            pointer = f"{self.spaces[node.ptr.type.space]} {bits(1)}*".strip()
            self.line(f"*({pointer})({where}) = {self.lookup(node.value.name)};")
            return
        if t.dtype is DType.FLOAT16:
            where = self.pieces(self._half_pointer(node.ptr, node.ptr.type.space))
            self.line(f"vstore_half_rte({self._to_be_rounded(node.value)}, {self.expression(node.index)}, {where});")
            return
        self.line(f"{self.pieces(self.element(node.ptr, node.index))} = {self._to_memory(node.value)};")

    def _vector_store(self, node: Store) -> None:
        t, where = node.value.type, self.pieces(self._address(node.ptr, node.index))
        if isinstance(node.value, Var) and node.value.name in self._waiting:
            self._waiting_store(node, where)
        elif t.dtype is DType.FLOAT16:
            self._bits_store(node, where, self._bits_of(node.value))
        elif node.align and node.align % (t.lanes * t.dtype.bytes) == 0:
            self._wide_store(node, where, self._to_memory(node.value))
        else:
            self.line(f"vstore{t.lanes}({self._to_memory(node.value)}, 0, {where});")

    def _bits_of(self, value: Expr) -> str:
        """Those that memory has of a value of 16 bits."""
        if isinstance(value, Var) and value.name in self._waiting:
            name, kind = self.lookup(value.name), bits(value.type.lanes)
            return name if self._waits_as(value.type.lanes) == kind else f"as_{kind}({name})"
        if value.type.dtype is not DType.FLOAT16:
            return self._to_memory(value)
        name = self.helper(f"half_bits_{tag(value.type)}", helpers.half_bits, value.type)
        return f"{name}({self._to_be_rounded(value)})"

    def _wide_store(self, node: Store, where: str, value: str) -> None:
        """Elements, as they are in memory, at an address that is a multiple of their bytes."""
        space = node.ptr.type.space
        kind, moved = self._kinds(space, node.value.type)
        pointer = f"{self.spaces[space]} {moved}*".strip()
        self.line(f"*({pointer})({where}) = {value if moved == kind else f'as_{moved}({value})'};")

    def _waiting_store(self, node: Store, where: str) -> None:
        """Elements that waited are stored as they did."""
        t, space = node.value.type, self.spaces[node.ptr.type.space]
        if node.align and node.align % (t.lanes * t.dtype.bytes) == 0:
            pointer = f"{space} {self._waits_as(t.lanes)}*".strip()
            self.line(f"*({pointer})({where}) = {self._as_in_memory(node.value)};")
        else:
            self._bits_store(node, where, self._bits_of(node.value))

    def _bits_store(self, node: Store, where: str, value: str) -> None:
        """The bits of halves are stored: compilers take stores of halves apart, and PoCL takes all of them for aligned."""
        t, space = node.value.type, self.spaces[node.ptr.type.space]
        if node.align and node.align % (t.lanes * t.dtype.bytes) == 0:
            self._wide_store(node, where, value)
        else:
            self.line(f"vstore{t.lanes}({value}, 0, ({f'{space} ushort*'.strip()})({where}));")

    def _to_memory(self, value: Expr) -> str:
        t = value.type
        if t.dtype is DType.BFLOAT16:
            if t.lanes == 1:
                return f"(ushort)(as_uint({self.expression(value)}) >> 16)"
            if t.lanes == 2 and self._dialect.ptx:
                return f"{self.helper(f'bits_{tag(t)}', ptx.bfloat_bits)}({self.expression(value)})"
            wide = unsigned(t.dtype, t.lanes)
            return f"convert_ushort{t.lanes}(as_{wide}({self.expression(value)}) >> ({wide})(16u))"
        if t.dtype is DType.BOOL and t.lanes > 1:
            return f"abs({self.expression(value)})"
        return self.expression(value)

    def _masked_store(self, node: Store) -> None:
        t, space = node.value.type, node.ptr.type.space
        assert node.mask is not None
        if t.lanes == 1:
            self.begin(f"if ({self.expression(node.mask)}) {{")
            self._plain_store(Store(node.ptr, node.index, node.value))
            self._scopes.pop()
            self._depth -= 1
            self.line("}")
            return
        element = {
            DType.BOOL: "p[LANE] = VALUE != 0;", DType.FLOAT16: "vstore_half_rte(VALUE, LANE, p);",
            DType.BFLOAT16: "p[LANE] = (ushort)(as_uint(VALUE) >> 16);",
        }.get(t.dtype, "p[LANE] = VALUE;")  # fmt: skip
        name = self.helper(f"store_{tag(t)}_{space.value}", helpers.masked_store, self.spaces[space], t, element)
        where = self.pieces(self._address(node.ptr, node.index))
        self.line(f"{name}({where}, {self.expression(node.value)}, {self.expression(node.mask)});")

    def write_barrier(self, node: Barrier) -> None:
        if node == COMPLETED:
            self.line(teams.COMPLETE)
            return
        if node.scope == "subgroup" and self._dialect.ptx:
            self.line(ptx.TOGETHER)
            return
        fence = _FENCES.get(node.fence, "CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE")
        self.line(f"barrier({fence});")

    def write_lastgroup(self, node: LastGroup) -> None:
        """The first item counts its group, for all that its items have stored."""
        name = self.helper("arrive", arrivals.arrive, self._dialect.ptx)
        first = " + ".join(f"get_local_id({axis})" for axis in range(3))
        self.line("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);")
        place = f"{self._arrivals} + {self.expression(node.which, ADDITIVE)}"
        self.line(f"if ({first} == 0) {self._last} = {name}({place}, {node.count});")
        self.line("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);")
        self.line(f"{self.expression(node.flag)} = {self._last} != 0;")

    def write_atomic(self, node: Atomic) -> None:
        t, space = node.value.type, node.ptr.type.space
        where = self.pieces(self._address(node.ptr, node.index))
        value = self.expression(node.value)
        integer = t.dtype.is_integer and t.dtype.bits >= 32
        merge = ptx.merger(space, node.agg, t.dtype.bits) if self._dialect.ptx and integer else None
        if merge is not None:
            name = self.helper(f"merge_{node.agg.value}_{space.value}_{tag(t)}", merge, node.agg, t.dtype)
            self.line(f"{name}({where}, {value});")
            return
        builtin = _ATOMICS.get((node.agg, t.dtype.bits)) if integer else None
        if builtin is not None:
            self.line(f"{builtin}({where}, {value});")
            return
        if t.dtype is DType.FLOAT16:
            self.preamble.setdefault("half bits", helpers.HALF_BITS)
        name = self.helper(f"atomic_{node.agg.value}_{tag(t)}_{space.value}", self._atomic, node.agg, space, t)
        self.line(f"{name}({where}, {value});")

    def _atomic(self, name: str, agg: Aggregation, space: Space, t: Type) -> str:
        if agg is Aggregation.ASSIGN:
            return helpers.atomic(name, self.spaces[space], t, "x")
        self._scopes.append({"old": "old", "x": "x"})
        merged = self.expression(Binary(agg.op, Var("old", t), Var("x", t), t))
        self._scopes.pop()
        return helpers.atomic(name, self.spaces[space], t, merged)

    def write_asynccopy(self, node: AsyncCopy) -> None:
        there = self.expression(node.guard) if node.guard is not None else ""
        guard = f"if ({there}) " if there and not node.fill else ""
        nbytes = asynchronous_bytes(node) if self._dialect.ptx else 0
        if not nbytes:
            self._product = NOWHERE
            self._copy_at_once(node, guard, there if node.fill else "")
            return
        kind = f"copy_async_{nbytes}" + ("_or_clear" if node.fill else "")
        name = self.helper(kind, ptx.copy_async, nbytes, node.fill)
        places = self.place(node.dst, node.dst_index), self.place(node.src, node.src_index)
        arguments = [*places, *([there] if node.fill else [])]
        self._behind_product()
        self.line(f"{guard}{name}({', '.join(arguments)});")

    def _behind_product(self) -> None:
        """The next line starts a copy, which may start behind what is read for the next product."""
        lines, depth = self._product
        self._product = ((*lines, len(self._lines)), depth) if lines and depth == len(self._scopes) else NOWHERE

    def _copy_at_once(self, node: AsyncCopy, guard: str, there: str) -> None:
        """A loop over the elements; what is not `there` becomes 0."""
        name = self.names.fresh("k")
        target = self.pieces([(node.dst, POSTFIX), "[", (node.dst_index, ADDITIVE), f" + {name}]"])
        source = self.pieces([(node.src, POSTFIX), "[", (node.src_index, ADDITIVE), f" + {name}]"])
        if node.dst.type.dtype is DType.FLOAT16:
            source = source.replace(
                self.expression(node.src, POSTFIX), f"((global const ushort*){self.expression(node.src, POSTFIX)})", 1
            )
        value = f"{there} ? {source} : 0" if there else source
        self.line(f"{guard}for (int {name} = 0; {name} < {node.count}; ++{name}) {target} = {value};")

    def write_asyncwait(self, node: AsyncWait) -> None:
        """Copies that are loops are complete when they are passed."""
        if node.group == PRODUCTS and self._sums:
            self._finish_products(node.pending)
        elif self._dialect.ptx and self._copy_groups:
            self.line(ptx.COMMIT)
            # PTX has one sequence: which of several groups its latest batches belong to is not known.
            self.line(ptx.wait(node.pending if len(self._copy_groups) == 1 else 0))
        self.wait_for_boxes(node)

    def write_teammma(self, node: TeamMma) -> None:
        if not self._dialect.teams or self._subgroup != LANES:
            raise SemtreeError(f"{node.instruction} needs a device with it, and sub-groups of {LANES}")
        self._fence(node)
        self._multiplying |= {v.name: v for v in node.c if isinstance(v, Var)}
        instruction, panels = MATRIX_INSTRUCTIONS[node.instruction], (node.a_panels, node.b_panels)
        if node.rounded:
            self._multiply_rounded(node, instruction)
            return
        if id(node) in self._held.factors:
            self._multiply_held(node, instruction)
            return
        name = f"{node.instruction}_{''.join('rp'[bool(p)] for p in panels)}"
        name = self.helper(name, teams.multiply, instruction, *map(bool, panels))
        places = ((node.a, node.a_index, node.a_panels), (node.b, node.b_index, node.b_panels))
        factors = [self._panels(*place) for place in places]
        self.line(f"{name}({', '.join([*self._pointers(node.c), *factors])});")

    def _multiply_held(self, node: TeamMma, instruction: MatrixInstruction) -> None:
        first = [self._pairs[name] for name in self._held.factors[id(node)]]
        name = f"{instruction.name}_h{'rp'[bool(node.b_panels)]}"
        name = self.helper(name, teams.multiply_held, instruction, len(first), bool(node.b_panels))
        second = self._panels(node.b, node.b_index, node.b_panels)
        self.line(f"{name}({', '.join([*self._pointers(node.c), *first, second])});")

    def _multiply_rounded(self, node: TeamMma, instruction: MatrixInstruction) -> None:
        """What is read for one product is on its way before the one in front of it starts, which waits for those before."""
        kind = "rp"[bool(node.a_panels)]
        read = self.helper(f"read_{instruction.name}_{kind}", teams.read, instruction, bool(node.a_panels))
        name = self.helper(f"{instruction.name}_rounded", teams.multiply_rounded, instruction)
        first = self.names.fresh("a")
        at, behind = ending(node.a_index, teams.PERIOD)
        place = f"{self.expression(node.a)}, (uint)({self.expression(at)}), {behind}, {node.a_panels}"
        self.line(f"const uint{teams.ROUNDED.registers} {first} = {read}({place});")
        moved, depth = self._product
        if depth == len(self._scopes):
            self._lines += [self._lines.pop(line - n) for n, line in enumerate(moved)]
        self._product = (len(self._lines),), len(self._scopes)
        second = self._panels(node.b, node.b_index, node.b_panels)
        self.line(f"{name}({', '.join([*self._pointers(node.c), first, second])});")

    def _fence(self, node: TeamMma) -> None:
        """In front of a batch, and where it is known that no earlier one adds to these sums, in front of the first that does."""
        if self._apart and any(isinstance(v, Var) and v.name not in self._multiplying for v in node.c):
            piece, count = node.c[0].type, len(node.c)
            name = self.helper(f"ready_{count}{teams.suffix(piece)}", teams.fence, count, piece)
            self.line(f"{name}({', '.join(self._pointers(node.c))});")
        elif not self._multiplying:
            self.line(teams.FENCE)

    def _panels(self, array: Expr, index: Expr, panels: int) -> str:
        name = self.helper("panels", teams.descriptor)
        # In one panel the distance to the next means nothing, and is 16 bytes by convention.
        apart = panels * array.type.dtype.bytes or 16
        width = array.type.dtype.bytes
        return f"{name}({self.expression(array)}, (uint)({self.expression(index)}) * {width}u, {apart})"

    def _finish_products(self, pending: int) -> None:
        # Sums that nothing adds to need not wait, and may be elsewhere meanwhile.
        sums = tuple(self._multiplying.values()) if self._apart else self._sums_here()
        piece, count = sums[0].type, len(sums)
        name = f"products_{count}_{pending}{teams.suffix(piece)}"
        name = self.helper(name, teams.wait, count, piece, pending, self._packed)
        self.line(f"{name}({', '.join(self._pointers(sums))});")
        self._multiplying.clear()

    def _sums_here(self) -> tuple[Expr, ...]:
        """Those that are declared: other branches have others."""
        return tuple(v for v in self._sums if isinstance(v, Var) and any(v.name in scope for scope in self._scopes))

    def _pointers(self, sums: Sequence[Expr]) -> list[str]:
        return [f"&{self.lookup(piece.name)}" for piece in sums if isinstance(piece, Var)]

    def write_callfn(self, node: CallFn) -> None:
        self.line(f"{self.lookup(node.name)}({', '.join(self.expression(arg) for arg in node.args)});")

    def write_comment(self, node: Comment) -> None:
        for text in comment_text(node.text):
            self.line(f"// {text}".rstrip())
