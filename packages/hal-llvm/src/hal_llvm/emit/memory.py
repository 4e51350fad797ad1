"""Loads, stores, allocations and atomics."""

from __future__ import annotations

import re

from tile_ir.dtype import DType
from tile_ir.kernels import STREAM_ALIGN
from tile_ir.ops import Aggregation
from tile_ir.semtree.nodes import STORED_AHEAD, Store, Type, Var

from hal_llvm.emit import arith
from hal_llvm.emit.code import Code
from hal_llvm.emit.types import held, literal, memory, register, spread, suffix

MOST_PARTS = 2
"""Powers of two that a vector is loaded and stored in."""
_STREAMED = re.compile(r", align \d+, !nontemporal !0")


def address(code: Code, base: str, index: str, index_type: str, dtype: DType, inside: bool = True) -> str:
    """Address of element `index`; `inside` says that it and `base` belong to one array."""
    if index == "0":
        return base
    bounds = " inbounds" if inside else ""
    return code.let(f"getelementptr{bounds} {memory(dtype)}, ptr {base}, {index_type} {index}")


def load(code: Code, pointer: str, type_: Type, align: int, mask: str | None) -> str:
    """A scalar or consecutive lanes; lanes off the mask hold zero."""
    dtype, lanes = type_.dtype, type_.lanes
    align = align or dtype.bytes
    if mask is not None:
        return _from_memory(code, _masked_load(code, pointer, dtype, lanes, align, mask), dtype, lanes)
    if lanes.bit_count() > MOST_PARTS:
        return _from_memory(code, _of_two_halves(code, pointer, dtype, lanes, align), dtype, lanes)
    value = code.let(f"load {memory(dtype, lanes)}, ptr {pointer}, align {align}")
    if held(lanes) > lanes:  # zeros beyond, which loads of parts of a register bring for nothing
        value = code.picked((memory(dtype, lanes), value), "zeroinitializer", range(held(lanes)))
    return _from_memory(code, value, dtype, lanes)


def _of_two_halves(code: Code, pointer: str, dtype: DType, lanes: int, align: int) -> str:
    """Lanes as two vectors that overlap, and zeros beyond: LLVM puts parts of three sizes together in memory, and waits for it."""
    half, whole = held(lanes) // 2, held(lanes)
    first = code.let(f"load {memory(dtype, half)}, ptr {pointer}, align {align}")
    end = address(code, pointer, str(lanes - half), "i64", dtype)
    last = code.let(f"load {memory(dtype, half)}, ptr {end}, align {dtype.bytes}")
    joined = code.picked((memory(dtype, half), first), last, [*range(half), *range(3 * half - lanes, whole)])
    beyond = range(whole, 2 * whole - lanes)
    return code.picked((memory(dtype, whole), joined), "zeroinitializer", [*range(lanes), *beyond])


def _masked_load(code: Code, pointer: str, dtype: DType, lanes: int, align: int, mask: str) -> str:
    bits, vector, mask = _masked_types(code, dtype, lanes, mask)
    name = f"llvm.masked.load.{suffix(vector)}.p0"
    masks = f"<{held(lanes)} x i1>"
    value = code.call(name, vector, ("ptr", pointer), ("i32", str(align)), (masks, mask), (vector, "zeroinitializer"))
    if lanes == 1:
        value = code.let(f"extractelement {vector} {value}, i64 0")
    target = memory(dtype, held(lanes))
    same = spread(bits, lanes)
    return value if same == target else code.let(f"bitcast {same} {value} to {target}")


def _masked_types(code: Code, dtype: DType, lanes: int, mask: str) -> tuple[str, str, str]:
    """Element and vector type of a masked access (halves move as integers), and the mask as a vector."""
    bits = "i16" if dtype is DType.FLOAT16 else memory(dtype)
    if lanes == 1:
        mask = code.let(f"insertelement <1 x i1> poison, i1 {mask}, i64 0")
    elif held(lanes) > lanes:
        real = ", ".join(f"i1 {str(n < lanes).lower()}" for n in range(held(lanes)))
        mask = code.let(f"and {spread('i1', lanes)} {mask}, <{real}>")
    return bits, f"<{held(lanes)} x {bits}>", mask


def store(code: Code, pointer: str, value: str, type_: Type, node: Store, mask: str | None) -> None:
    """Store lanes; streaming stores bypass the caches where the alignment allows (`bypasses`)."""
    dtype, lanes = type_.dtype, type_.lanes
    past = bypasses(node)
    # What a streaming store states is true of buffers that begin at lines alone.
    align = node.align if past or (node.align and node.hint != "streaming") else dtype.bytes
    if node.hint == "prefetch" and lanes > 1 and mask is None:
        _fetch(code, address(code, pointer, str(STORED_AHEAD // dtype.bytes), "i64", dtype, inside=False))
    value = _to_memory(code, value, dtype, lanes)
    if mask is not None:
        _masked_store(code, pointer, value, dtype, lanes, align, mask)
        return
    if lanes.bit_count() > MOST_PARTS and not past:
        _store_halves(code, pointer, value, dtype, lanes, align)
        return
    if held(lanes) > lanes:
        value = _first(code, value, dtype, lanes)
    hint = ", !nontemporal !0" if past else ""
    code.emit(f"store {memory(dtype, lanes)} {value}, ptr {pointer}, align {align}{hint}")


def _store_halves(code: Code, pointer: str, value: str, dtype: DType, lanes: int, align: int) -> None:
    """Lanes as two vectors that overlap, where LLVM would store three parts and more."""
    half, start = held(lanes) // 2, lanes - held(lanes) // 2
    end = address(code, pointer, str(start), "i64", dtype)
    for place, first, by in ((pointer, 0, align), (end, start, dtype.bytes)):
        part = code.picked((memory(dtype, held(lanes)), value), "poison", range(first, first + half))
        code.emit(f"store {memory(dtype, half)} {part}, ptr {place}, align {by}")


def _fetch(code: Code, pointer: str) -> None:
    """Bring a line into the second cache, wherever it is: no address is a fault."""
    code.call("llvm.prefetch.p0", "void", ("ptr", pointer), ("i32", "0"), ("i32", "2"), ("i32", "1"))


def bypasses(node: Store) -> bool:
    """Whether a store goes past the caches, in a buffer that begins at a line.

    Only whole vectors do, and those in one piece: LLVM would split vectors that are wider than the alignment, and a line
    that leaves in parts takes as long as several.
    """
    lanes = node.value.type.lanes
    if node.hint != "streaming" or lanes == 1 or node.mask is not None or not isinstance(node.ptr, Var):
        return False
    return node.align >= min(lanes * node.value.type.dtype.bytes, STREAM_ALIGN)


def through_caches(text: str) -> str:
    """A function's text for buffers that begin anywhere: no store goes past the caches."""
    return _STREAMED.sub(", align 1", text)


def _first(code: Code, value: str, dtype: DType, lanes: int) -> str:
    """What a register holds, without what fills it up."""
    vector = memory(dtype, held(lanes))
    numbers = ", ".join(f"i32 {lane}" for lane in range(lanes))
    return code.let(f"shufflevector {vector} {value}, {vector} poison, <{lanes} x i32> <{numbers}>")


def _masked_store(code: Code, pointer: str, value: str, dtype: DType, lanes: int, align: int, mask: str) -> None:
    bits, vector, mask = _masked_types(code, dtype, lanes, mask)
    if memory(dtype) != bits:
        value = code.let(f"bitcast {memory(dtype, held(lanes))} {value} to {spread(bits, lanes)}")
    if lanes == 1:
        value = code.let(f"insertelement {vector} poison, {bits} {value}, i64 0")
    elif bits.startswith("i"):
        mask = _unknown(code, lanes, mask)
    code.call(
        f"llvm.masked.store.{suffix(vector)}.p0", "void",
        (vector, value), ("ptr", pointer), ("i32", str(align)), (f"<{held(lanes)} x i1>", mask),
    )  # fmt: skip


def _unknown(code: Code, lanes: int, mask: str) -> str:
    """The mask, as one that LLVM knows nothing of.

    It makes a scalar store of a masked one of which it knows that one lane is on; where the lanes are the low halves of
    wider ones, LLVM 22 forgets to take these, and writes beside the lane.
    """
    zero = code.let('call i32 asm "", "=r,0"(i32 0)')
    on = code.splat("i1", lanes, code.let(f"icmp eq i32 {zero}, 0"))
    return code.let(f"and {spread('i1', lanes)} {mask}, {on}")


def _from_memory(code: Code, value: str, dtype: DType, lanes: int) -> str:
    if dtype is not DType.BOOL:
        return value
    return code.let(f"icmp ne {memory(dtype, held(lanes))} {value}, {literal(0, DType.UINT8, lanes)}")


def _to_memory(code: Code, value: str, dtype: DType, lanes: int) -> str:
    if dtype is not DType.BOOL:
        return value
    return code.let(f"zext {register(dtype, lanes)} {value} to {memory(dtype, held(lanes))}")


def atomic(code: Code, agg: Aggregation, pointer: str, value: str, dtype: DType) -> None:
    """``*pointer = agg(*pointer, value)`` indivisibly, for every dtype, by compare and exchange."""
    bits = f"i{dtype.bits}"
    loop, done = code.fresh("atomic"), code.fresh("done")
    first = code.let(f"load atomic {bits}, ptr {pointer} monotonic, align {dtype.bytes}")
    before = code.label
    code.jump(loop)
    code.block(loop)
    old, again = code.fresh("%old"), code.fresh("%seen")
    place = code.reserve()
    merged = value if agg is Aggregation.ASSIGN else _merge(code, agg, old, value, dtype)
    new = _as_bits(code, merged, dtype)
    pair = code.let(f"cmpxchg ptr {pointer}, {bits} {old}, {bits} {new} monotonic monotonic, align {dtype.bytes}")
    code.emit(f"{again} = extractvalue {{ {bits}, i1 }} {pair}, 0")
    good = code.let(f"extractvalue {{ {bits}, i1 }} {pair}, 1")
    code.fill(place, f"{old} = phi {bits} [ {first}, %{before} ], [ {again}, %{code.label} ]")
    code.branch(good, done, loop)
    code.block(done)


def _merge(code: Code, agg: Aggregation, old_bits: str, value: str, dtype: DType) -> str:
    current = old_bits
    if dtype is DType.BOOL:
        current = _from_memory(code, old_bits, dtype, 1)
    elif dtype.is_float and dtype is not DType.BFLOAT16:
        current = code.let(f"bitcast i{dtype.bits} {old_bits} to {register(dtype)}")
    return arith.binary(code, agg.op, current, value, dtype, 1)


def _as_bits(code: Code, value: str, dtype: DType) -> str:
    if dtype.is_float and dtype is not DType.BFLOAT16:
        return code.let(f"bitcast {register(dtype)} {value} to i{dtype.bits}")
    return _to_memory(code, value, dtype, 1)
