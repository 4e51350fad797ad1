"""What the lanes of a sub-group do together: matrix instructions and shuffles; and the rounding of factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from tile_ir.dtype import DType
from tile_ir.emit.pieces import ATOM, Expansion, Piece, call, commas
from tile_ir.emit.walker import walk_all, walk_statements
from tile_ir.matrix import LANES, MANTISSA_BITS, TF32_BITS, MatrixInstruction, Operand, instruction_of
from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.nodes import Call, Expr, Function, MatrixLoad, Mma, Round, Space, SubgroupOp, TeamMma

from hal_opencl.emit import approximate, dpas, helpers, ptx
from hal_opencl.emit.lanes import LaneExpressions
from hal_opencl.emit.types import HALVES, register, tag

CONTRACTED, CONTRACTS = "#pragma OPENCL FP_CONTRACT ON", "-cl-mad-enable"
"""Products may be added without having been rounded; the option is for drivers to which the words of the language say nothing."""


def multiplies(function: Function) -> bool:
    """The function has products on matrix instructions."""
    started = any(isinstance(s, TeamMma) for s in walk_statements(function.body))
    return started or any(isinstance(node, Mma) for node in walk_all(function))


class MatrixExpressions(LaneExpressions):
    """Round everywhere; collectives where the dialect has PTX, MatrixLoad and Mma where the function has sub-groups."""

    _subgroup: int = 0
    _rounded: bool = False
    """Factors of the function's products are rounded, and functions of what comes of them may be."""

    def _mantissa(self, node: Round) -> Expansion:
        t, bits = node.type, node.bits
        if t.dtype is not DType.FLOAT32 or bits < 0:
            raise SemtreeError(f"{t.dtype} is not rounded to {bits} mantissa bits")
        if bits >= MANTISSA_BITS:
            return self.expand(node.value)
        name = f"round_{bits}_{tag(t)}"
        if self._dialect.ptx and bits == TF32_BITS:
            return call(self.helper(name, ptx.round_tf32, t), (node.value,))
        return call(self.helper(name, helpers.round_mantissa, bits, t), (node.value,))

    def _call(self, node: Call) -> Expansion:
        t = node.type
        maker = approximate.of_floats.get(node.name) if self._rounded and t.dtype is DType.FLOAT32 else None
        if maker is None:
            return super()._call(node)
        return call(self.helper(f"{node.name}_{tag(t)}", maker, t), node.args)

    def _matrix_load(self, node: MatrixLoad) -> Expansion:
        self._check_collective(node)
        t, ptr = node.type, node.ptr.type
        if t.dtype not in HALVES or ptr.dtype is not t.dtype or ptr.lanes != 1 or ptr.space is not Space.LOCAL:
            raise SemtreeError(f"no matrices of {t.dtype} are loaded from {ptr.space.value} memory of {ptr.dtype}")
        if t.lanes not in (2, 4, 8):
            raise SemtreeError(f"{t.lanes} lanes are not the registers of 1, 2 or 4 matrices")
        if t.dtype is DType.FLOAT16:
            self.preamble.setdefault("unpack halves", ptx.UNPACK_HALVES)
        name = f"load_matrices_{tag(t)}" + ("_transposed" if node.transpose else "")
        load = self.helper(name, ptx.load_matrices, t.dtype, t.lanes // 2, node.transpose)
        return ATOM, [f"{load}(", *self._address(node.ptr, node.index), ")"]

    def _multiply(self, node: Mma) -> Expansion:
        instruction = self._instruction(node)
        if instruction.name in dpas.FUNCTIONS and self._dialect.subgroup_products:
            self._check_lanes(node, instruction.lanes)
            if instruction.a.dtype is DType.FLOAT16:
                self.preamble.setdefault("halves", dpas.HALF)
            name = self.helper(instruction.name, dpas.multiply, instruction)
        else:
            self._check_collective(node)
            if instruction.a.dtype is DType.FLOAT16:
                self.preamble.setdefault("pack halves", ptx.PACK_HALVES)
            name = self.helper(instruction.name, ptx.multiply, instruction)
        a, b = _registers(node.a, instruction.a), _registers(node.b, instruction.b)
        return ATOM, [f"{name}(", *a, ", ", *b, ", ", *_registers(node.c, instruction.c), ")"]

    def _collective(self, node: SubgroupOp) -> Expansion:
        op, dtype = node.op, node.type.dtype
        merge = op.removeprefix("reduce_")
        if not self._dialect.ptx or node.type.lanes > 1:
            raise SemtreeError(f"{op} of {node.type} needs PTX")
        if op in ptx.SHUFFLES:
            return call(self.helper(f"{op}_{dtype}", ptx.shuffle, op, dtype), node.args)
        if merge == "mul" or dtype not in (DType.INT32, DType.UINT32):
            raise SemtreeError(f"no instruction is {op} of {dtype}")
        return call(self.helper(f"{op}_{dtype}", ptx.reduce_lanes, merge, dtype), node.args)

    @staticmethod
    def _instruction(node: Mma) -> MatrixInstruction:
        dtypes = {part.type.dtype for part in (*node.a, *node.b)}
        found = instruction_of(node.shape, next(iter(dtypes)))
        written = found is not None and (found.name in ptx.MNEMONICS or found.name in dpas.FUNCTIONS)
        if len(dtypes) > 1 or found is None or not written or node.type.dtype is not found.c.dtype:
            names = ", ".join(sorted(map(str, dtypes)))
            raise SemtreeError(f"no matrix instruction of shape {node.shape} makes {node.type.dtype} of {names}")
        return found

    def _check_collective(self, node: Expr) -> None:
        if not self._dialect.ptx:
            raise SemtreeError(f"{type(node).__name__} needs PTX")
        self._check_lanes(node, LANES)

    def _check_lanes(self, node: Expr, lanes: int) -> None:
        if self._subgroup != lanes:
            raise SemtreeError(f"{type(node).__name__} is for sub-groups of {lanes}, not of {self._subgroup}")

    _handlers: ClassVar[dict[type, Callable[..., Expansion]]] = {
        **LaneExpressions._handlers, Call: _call, Round: _mantissa, MatrixLoad: _matrix_load, Mma: _multiply, SubgroupOp: _collective,
    }  # fmt: skip


def _registers(parts: Sequence[Expr], operand: Operand) -> list[Piece]:
    """Values as one vector, in order."""
    lanes = sum(part.type.lanes for part in parts)
    if lanes != operand.registers:
        raise SemtreeError(f"a lane holds {operand.registers} elements of this operand, not {lanes}")
    return [(parts[0], 0)] if len(parts) == 1 else [f"({register(operand.dtype, lanes)})(", *commas(parts), ")"]
