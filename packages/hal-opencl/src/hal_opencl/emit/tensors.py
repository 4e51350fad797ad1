"""Copies of boxes of tensors as PTX: by descriptors that each group makes for itself, and counted by barriers in its local memory.

What makes a descriptor belongs to the target of `hal_opencl.emit.teams`. It is written to local memory, published in global
memory that belongs to the queue (`hal_opencl.emit.arrivals`), and the same for all groups. An `mbarrier` per batch, in a
ring, counts the bytes that are still to come, and whoever closes the batch: the first item.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from tile_ir.emit.walker import walk_statements
from tile_ir.frozen import frozen
from tile_ir.semtree.nodes import AsyncWait, Function, TensorCopy, Var

from hal_opencl.emit.ptx import TOGETHER
from hal_opencl.emit.teams import HIDDEN

WORDS = 32
"""Words of a descriptor, and items that write it."""
PLACES = 1024
"""Descriptors that there is room for: groups beyond share their places, for what they write there is the same."""
ROUNDED, SWIZZLED = 11, 3
"""An element type, which rounds to TF32, and a swizzle of rows of 128 bytes, as descriptors name them."""
ITEM = "(get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2)))"
GROUP = "(get_group_id(0) + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2)))"


@frozen
class Tensor:
    """What a descriptor says: a parameter, its dimensions, those of the boxes, and from which to which element these step."""

    source: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]


def tensor_of(node: TensorCopy) -> Tensor:
    assert isinstance(node.src, Var)
    return Tensor(node.src.name, node.sizes, node.strides, node.box, node.steps)


@frozen
class Tensors:
    """The tensors of a kernel, and the group whose batches their copies are in."""

    tensors: tuple[Tensor, ...]
    group: int
    pending: int
    """Batches that a wait leaves unfinished, at most."""

    @property
    def ring(self) -> int:
        """Barriers: none is used anew before all items have seen its last batch complete."""
        return 1 << (self.pending + 1).bit_length()

    def number(self, node: TensorCopy) -> int:
        return self.tensors.index(tensor_of(node))

    def waits(self, pending: int) -> Iterator[int]:
        """How far behind the one that is closed those batches are that may not have been waited for."""
        return iter(range(self.pending, pending - 1, -1))


def tensors_of(function: Function) -> Tensors | None:
    """None where the kernel copies none; ValueError where they are no parameters, or in several groups."""
    copies = [s for s in walk_statements(function.body) if isinstance(s, TensorCopy)]
    if not copies:
        return None
    params = {p.name for p in function.params}
    groups = {s.group for s in copies}
    if len(groups) > 1 or any(not isinstance(s.src, Var) or s.src.name not in params for s in copies):
        raise ValueError("boxes of tensors that are no parameters, or in several groups")
    (group,) = groups
    waits = (s.pending for s in walk_statements(function.body) if isinstance(s, AsyncWait) and s.group == group)
    return Tensors(tuple(dict.fromkeys(map(tensor_of, copies))), group, max(waits, default=0))


def local_bytes(function: Function) -> int:
    """Of local memory, for descriptors and barriers."""
    found = tensors_of(function)
    return 0 if found is None else 4 * WORDS * len(found.tensors) + 8 * found.ring


def _replaced(field: str, kind: str, value: str, dim: str = "") -> str:
    """One field of a descriptor in local memory; `value` is a constant, or an operand in C."""
    what = f"tensormap.replace.tile.{field}.shared::cta.b1024.{kind} [%0]{dim}"
    if field in ("elemtype", "interleave_layout", "swizzle_mode", "fill_mode"):
        return f'asm volatile("{HIDDEN}{what}, {value};" :: "r"(words) : "memory");'
    constraint = "l" if kind == "b64" else "r"
    return f'asm volatile("{HIDDEN}{what}, %1;" :: "r"(words), "{constraint}"({value}) : "memory");'


def _fields(tensor: Tensor) -> Iterator[str]:
    """All of a descriptor, dimensions innermost first."""
    width = 4
    yield _replaced("global_address", "b64", "(ulong)(size_t)from")
    yield _replaced("rank", "b32", f"{len(tensor.sizes) - 1}u")
    dims = zip(tensor.sizes, tensor.strides, tensor.box, tensor.steps, strict=True)
    for number, (size, stride, count, step) in enumerate(reversed([*dims])):
        yield _replaced("box_dim", "b32", f"{count * step}u", f", {number}")
        yield _replaced("global_dim", "b32", f"{size}u", f", {number}")
        yield _replaced("element_stride", "b32", f"{step}u", f", {number}")
        if number:  # the first one is dense
            yield _replaced("global_stride", "b64", f"{stride * width}ul", f", {number - 1}")
    yield _replaced("elemtype", "b32", str(ROUNDED))
    yield _replaced("interleave_layout", "b32", "0")
    yield _replaced("swizzle_mode", "b32", str(SWIZZLED))
    yield _replaced("fill_mode", "b32", "0")


def describe(name: str, tensor: Tensor) -> str:
    """The sub-group whose first item is `first` publishes a descriptor; `made` is where."""
    return "\n".join([
        f"void {name}(local uint* at, global uint* made, global const void* from, uint first) {{",
        f"    const uint item = {ITEM} - first;",
        f"    if (item >= {WORDS}) return;",
        "    const uint words = (uint)(size_t)at;",
        "    at[item] = 0;",
        f"    {TOGETHER}",
        "    if (item == 0) {",
        *(f"        {line}" for line in _fields(tensor)),
        "    }",
        f"    {TOGETHER}",
        f'    asm volatile("{HIDDEN}tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned'
        f' [%0], [%1], {4 * WORDS};" :: "l"((ulong)(size_t)made), "r"(words) : "memory");',
        "}",
    ])  # fmt: skip


def known(name: str) -> str:
    """The first item, who starts all copies, sees a descriptor that was published before all items met."""
    return "\n".join([
        f"void {name}(global const uint* made) {{",
        f"    if ({ITEM} != 0) return;",
        f'    asm volatile("{HIDDEN}fence.proxy.tensormap::generic.acquire.gpu [%0], {4 * WORDS};"'
        ' :: "l"((ulong)(size_t)made) : "memory");',
        "}",
    ])  # fmt: skip


def place(arrivals: str, counts: int, number: int, count: int) -> str:
    """Where a group publishes its descriptor of tensor `number` of `count`: behind the counts."""
    return f"(global uint*){arrivals} + {counts} + ({GROUP} % {PLACES // count} * {count} + {number}) * {WORDS}"


def ready(name: str, ring: int) -> str:
    """The first item makes the barriers, each of which waits for one item, and for bytes."""
    return "\n".join([
        f"void {name}(local ulong* barriers) {{",
        f"    if ({ITEM} != 0) return;",
        f"    for (uint n = 0; n < {ring}; ++n)",
        '        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"((uint)(size_t)barriers + 8 * n) : "memory");',
        f'    asm volatile("{HIDDEN}fence.proxy.async.shared::cta;" ::: "memory");',
        "}",
    ])  # fmt: skip


def start(name: str, box: tuple[int, ...]) -> str:
    """The first item starts a copy, of which its batch's barrier counts the bytes."""
    rank = len(box)
    at = ", ".join(f"int x{n}" for n in range(rank))
    places = ", ".join(f"%{2 + n}" for n in range(rank))
    operands = ", ".join(f'"r"(x{n})' for n in reversed(range(rank)))
    return "\n".join([
        f"void {name}(local void* to, global const void* map, local ulong* barrier_, {at}) {{",
        f"    if ({ITEM} != 0) return;",
        "    const uint there = (uint)(size_t)barrier_;",
        f'    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], {4 * prod(box)};" :: "r"(there) : "memory");',
        f'    asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes'
        f' [%0], [%1, {{{places}}}], [%{2 + rank}];"',
        f'        :: "r"((uint)(size_t)to), "l"((ulong)(size_t)map), {operands}, "r"(there) : "memory");',
        "}",
    ])  # fmt: skip


def close(name: str) -> str:
    """The first item says that nothing more comes."""
    return "\n".join([
        f"void {name}(local ulong* barrier_) {{",
        f"    if ({ITEM} != 0) return;",
        '    asm volatile("{.reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0];}" :: "r"((uint)(size_t)barrier_) : "memory");',
        "}",
    ])  # fmt: skip


def wait(name: str, ring: int, behind: Iterable[int]) -> str:
    """Every item waits for the batches so far behind the one that was closed, where there are such."""
    return "\n".join([
        f"void {name}(local ulong* barriers, uint closed) {{",
        *(
            f"    for (uint n = closed - {far}, done = closed < {far}; !done;)\n"
            '        asm volatile("{.reg .pred q; mbarrier.try_wait.parity.shared::cta.b64 q, [%1], %2; selp.u32 %0, 1, 0, q;}"\n'
            f'            : "=r"(done) : "r"((uint)(size_t)barriers + n % {ring} * 8), "r"(n / {ring} & 1) : "memory");'
            for far in behind
        ),
        "}",
    ])  # fmt: skip
