"""Statements: a walk with an explicit stack, so that depth never meets a recursion limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

from tile_ir.diagnostics import TileInternalError
from tile_ir.semtree.nodes import (
    Alloc,
    Assign,
    AsyncCopy,
    AsyncWait,
    Atomic,
    Barrier,
    Block,
    CallFn,
    Comment,
    Expr,
    For,
    If,
    Let,
    Load,
    Return,
    Statement,
    Store,
    TileStep,
    Unroll,
    Var,
    While,
)

from hal_llvm.emit import memory, tiles
from hal_llvm.emit.code import Code
from hal_llvm.emit.expressions import Expressions, Scope, Variable, displaced
from hal_llvm.emit.polling import static_trips
from hal_llvm.emit.types import literal, of
from hal_llvm.emit.types import memory as memory_type
from hal_llvm.emit.variables import Assigned, Carried, assigned_below

FULL_UNROLL_LIMIT = 256
"""Most iterations of an Unroll.FULL loop that are written out."""
STACK_LIMIT = 64 * 1024
"""Bytes of a function's private arrays on the stack; those beyond it are in the thread's scratch memory."""

Work = Statement | Callable[[], None]


class Statements:
    """Emits the statements of one function."""

    def __init__(
        self,
        code: Code,
        scope: Scope,
        *,
        exit_label: str,
        scratch: Callable[[int, int], str],
        helpers: str,
        polling: frozenset[int] = frozenset(),
    ) -> None:
        self.code = code
        self.scope = scope
        self.exit_label = exit_label
        self.scratch = scratch
        """Gives a pointer to so many bytes of scratch memory with an alignment."""
        self.helpers = helpers
        """Prefix of the symbols of the kernel's helper functions."""
        self.polling = polling
        """Loops, by identity, that end when the word at ``%stop`` is not 0."""
        self.values = Expressions(code, scope)
        self._assigned: Assigned = {}
        self._sums: frozenset[str] = frozenset()
        self._stack = 0

    def run(self, block: Block) -> None:
        """Emit `block`, a function's body, from the current position on."""
        self._assigned = assigned_below(block)
        self._sums = tiles.sums(block)
        stack: list[Work] = [block]
        while stack:
            item = stack.pop()
            handler = self._handlers.get(type(item))
            if handler is not None:
                stack.extend(reversed(list(handler(self, item) or ())))
            elif callable(item):
                item()
            else:
                raise TileInternalError(f"the llvm device has no {type(item).__name__} statement")

    def _block(self, node: Block) -> Iterable[Work]:
        mark = len(self.scope.log)
        return (*node.body, lambda: self.scope.restore(mark))

    def _let(self, node: Let) -> None:
        value = self.values.value(node.value)
        if isinstance(node.value, Load) and isinstance(node.value.ptr, Var) and node.value.ptr.name in self._sums:
            self.code.normal.add(value)
        self.scope.bind(node.name, Variable(value, of(node.value.type)) if node.mutable else value)

    def _assign(self, node: Assign) -> None:
        variable = self.scope.values.get(node.name)
        if not isinstance(variable, Variable):
            raise TileInternalError(f"semtree variable {node.name!r} is not a mutable one")
        variable.value = self.values.value(node.value)

    def _carried(self, *inside: Block) -> Carried:
        return Carried(self.code, self.scope, self._assigned, inside)

    def _pointer(self, ptr: Expr, index: Expr) -> str:
        base, varying = self.values.value(ptr), self.values.value(displaced(index)[0])
        return self.values.address(base, varying, index, ptr.type.dtype)

    def _store(self, node: Store) -> None:
        value = self.values.value(node.value)
        mask = self.values.value(node.mask) if node.mask is not None else None
        memory.store(self.code, self._pointer(node.ptr, node.index), value, node.value.type, node, mask)
        if isinstance(node.ptr, Var) and memory.bypasses(node):
            self.code.streamed.add(node.ptr.name)

    def _tile_step(self, node: TileStep) -> None:
        tiles.step(
            self.code, node, "" if node.ptr is None or node.index is None else self._pointer(node.ptr, node.index)
        )

    def _alloc(self, node: Alloc) -> None:
        count = max(1, node.type.count) * node.type.lanes
        size = count * node.type.dtype.bytes
        if self._stack + size < STACK_LIMIT:
            self._stack += size
            pointer = self.code.alloca(f"[{count} x {memory_type(node.type.dtype)}]", node.align)
        else:
            pointer = self.scratch(size, max(64, node.align))
        self.scope.bind(node.name, pointer)

    def _if(self, node: If) -> Iterable[Work]:
        code = self.code
        cond = self.values.value(node.cond)
        carried = self._carried(node.then, *((node.other,) if node.other is not None else ()))
        then, done = code.fresh("then"), code.fresh("endif")
        other = code.fresh("else") if node.other is not None else done
        edges = [carried.edge()]
        code.branch(cond, then, other)
        code.block(then)

        def between() -> None:
            edges.append(carried.edge())
            code.jump(done)
            if node.other is not None:
                carried.back_to(edges.pop(0))
                code.block(other)

        def end() -> None:
            if node.other is not None:
                edges.append(carried.edge())
                code.jump(done)
            code.block(done)
            carried.join(*edges)

        return (node.then, between, *((node.other,) if node.other is not None else ()), end)

    def _while(self, node: While) -> Iterable[Work]:
        code, carried = self.code, self._carried(node.body)
        test, body, done = code.fresh("while"), code.fresh("do"), code.fresh("done")
        before = carried.edge()
        code.jump(test)
        code.block(test)
        carried.loop()
        cond = self.values.value(node.cond)
        tested = carried.edge()
        code.branch(cond, body, done)
        code.block(body)

        def end() -> None:
            carried.close(before, carried.edge())
            code.jump(test)
            code.block(done)
            carried.back_to(tested)

        return (node.body, end)

    def _for(self, node: For) -> Iterable[Work]:
        trips = static_trips(node)
        if node.unroll is Unroll.FULL and trips is not None and len(trips) <= FULL_UNROLL_LIMIT:
            return self._unrolled(node, trips)
        return self._loop(node, trips)

    def _unrolled(self, node: For, trips: range) -> Iterable[Work]:
        mark = len(self.scope.log)

        def enter(number: int) -> Callable[[], None]:
            return lambda: self.scope.bind(node.var, literal(number, node.start.type.dtype))

        return [
            step for number in trips for step in (enter(number), node.body, lambda: self.scope.restore(mark))
        ]  # fmt: skip

    def _loop(self, node: For, trips: range | None) -> Iterable[Work]:
        """A loop that tests at its end, with a guard in front unless it surely runs."""
        code, t = self.code, of(node.start.type)
        signed = node.start.type.dtype.is_signed
        start, stop = self.values.value(node.start), self.values.value(node.stop)
        body, done = code.fresh("loop"), code.fresh("after")
        if trips is not None and not trips:
            return ()
        carried = self._carried(node.body)
        edges = [carried.edge()]
        if not trips:
            enter = code.fresh("enter")
            code.branch(code.let(f"icmp {'s' if signed else 'u'}lt {t} {start}, {stop}"), enter, done)
            code.block(enter)
        first, leave = carried.edge(), self.values.ahead_of_loop()
        code.jump(body)
        code.block(body)
        var, following = code.fresh("%i"), code.fresh("%i")
        place, mark = code.reserve(), len(self.scope.log)
        carried.loop()
        self.scope.bind(node.var, var)

        def end() -> None:
            self.scope.restore(mark)
            leave()
            # Bounds are extents of tensors, far from where a 32-bit counter would wrap.
            wrap = " nsw" if signed and node.start.type.dtype.bits >= 32 else ""
            code.emit(f"{following} = add{wrap} {t} {var}, {node.step}")
            if id(node) in self.polling:
                self._poll()
            edges.append(carried.edge())
            before, latch = first.label, edges[-1].label
            again = code.let(f"icmp {'s' if signed else 'u'}lt {t} {following}, {stop}")
            code.emit(f"br i1 {again}, label %{body}, label %{done}, !llvm.loop {code.module.loop_id()}")
            code.fill(place, f"{var} = phi {t} [ {start}, %{before} ], [ {following}, %{latch} ]")
            carried.close(first, edges[-1])
            code.block(done)
            carried.join(*(edges[1:] if trips else edges))

        return (node.body, end)

    def _poll(self) -> None:
        code, going = self.code, self.code.fresh("going")
        stop = code.let("load atomic volatile i64, ptr %stop monotonic, align 8")
        code.branch(code.let(f"icmp eq i64 {stop}, 0"), going, self.exit_label)
        code.block(going)

    def _atomic(self, node: Atomic) -> None:
        value = self.values.value(node.value)
        memory.atomic(self.code, node.agg, self._pointer(node.ptr, node.index), value, node.value.type.dtype)

    def _async_copy(self, node: AsyncCopy) -> Iterable[Work]:
        """A plain copy: it is complete when the next statement starts."""
        if node.guard is not None:
            plain = replace(node, guard=None, fill=False)
            zeros = Block((replace(plain, src=node.dst, src_index=node.dst_index, fill=True),)) if node.fill else None
            return (If(node.guard, Block((plain,)), zeros),)
        dst = self._pointer(node.dst, node.dst_index)
        size = node.count * node.dst.type.dtype.bytes
        if node.fill:  # the branch of a guard that is false
            zero = ("i8", "0"), ("i64", str(size)), ("i1", "false")
            self.code.call("llvm.memset.p0.i64", "void", ("ptr", dst), *zero)
            return ()
        src = self._pointer(node.src, node.src_index)
        self.code.call("llvm.memcpy.p0.p0.i64", "void", ("ptr", dst), ("ptr", src), ("i64", str(size)), ("i1", "false"))
        return ()

    def _call_fn(self, node: CallFn) -> None:
        args = [(of(arg.type), self.values.value(arg)) for arg in node.args]
        ids = [("i64", group) for group in self.scope.groups]
        self.code.call_local(f"{self.helpers}{node.name}", "void", *args, *ids, ("ptr", "%scratch"))

    def _return(self, node: Return) -> None:
        del node
        self.code.jump(self.exit_label)
        self.code.block(self.code.fresh("unreachable"))

    def _nothing(self, node: Statement) -> None:
        """Comments; barriers and waits of a group of one work item."""

    _handlers: ClassVar[dict[type, Callable[[Any, Any], Iterable[Work] | None]]] = {
        Block: _block,
        Let: _let,
        Assign: _assign,
        Store: _store,
        Alloc: _alloc,
        If: _if,
        While: _while,
        For: _for,
        Atomic: _atomic,
        AsyncCopy: _async_copy,
        TileStep: _tile_step,
        AsyncWait: _nothing,
        Barrier: _nothing,
        CallFn: _call_fn,
        Comment: _nothing,
        Return: _return,
    }
