"""The loops of the probe, as LLVM IR: each does one thing, whose rate its time tells.

All are functions ``(ptr p, ptr q, i64 bytes, i64 times)``: those of arithmetic make `times` trips, on operands at `p` that
LLVM cannot know, and walks go `times` times over `bytes` bytes at `p`, at `q`, or from `p` to `q`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tile_ir.frozen import frozen

LINE, BLOCK = 64, 256
"""Bytes of a line, and of what one trip of a walk moves."""
ELEMENT = 4
PAGES = 4
"""Pages that one trip of the walk over pages goes to, another line of each."""
WAITING = 24
"""Multiplications in a row, in the loop that tells how far a core looks ahead."""


@frozen
class Loop:
    """A function, and the instructions, or bytes, of one trip."""

    name: str
    text: str
    count: int


@frozen
class Chain:
    """A value that each trip changes `times` times, by one after the other of `forms`, instructions that make ``%x`` of ``%y``."""

    forms: Sequence[str]
    times: int = 1
    scalar: bool = False


class Loops:
    """Loops on vector registers of so many bytes; `fused`: they multiply and add at once; `page`: bytes of one."""

    def __init__(self, bytes_: int, fused: bool, page: int) -> None:
        self.bytes, self.apart = bytes_, page + LINE
        lanes = bytes_ // ELEMENT
        self.vector, self._bits, self._truth = (f"<{lanes} x {kind}>" for kind in ("float", "i32", "i1"))
        self._near = _mask(lane ^ 1 for lane in range(lanes))
        self._far = _mask((lane + lanes // 2) % lanes for lane in range(lanes))
        self._suffix, self._fused = f"v{lanes}f32", fused

    def module(self) -> str:
        """All of them."""
        of = self.vector
        functions = (
            f"declare {of} @llvm.fma.{self._suffix}({of}, {of}, {of})\ndeclare {of} @llvm.sqrt.{self._suffix}({of})\n"
        )
        return "\n".join([*(loop.text for loop in (*self.arithmetic(), *self.walks())), functions, "!0 = !{i32 1}\n"])

    def arithmetic(self) -> Iterator[Loop]:
        """What a core computes, and what it fetches and stores with the nearest cache at hand."""
        fma, add, logic, scalar = self._multiply(), self._call("fadd", "%y, %k"), self._logic(), Chain(_SCALAR, 4, True)
        fetched, across = self._fetches(self.bytes), self._fetches(LINE, LINE - ELEMENT)
        yield self._loop("clock", [Chain(_SCALAR, 64, True)])
        yield self._loop("fma", [Chain([fma], 2)] * 12)
        yield self._loop("add", [Chain([add], 2)] * 8 + [Chain(logic, 2)] * 4)
        yield self._loop("vector", [Chain([fma], 2)] * 5 + [Chain(logic, 4)] * 6)
        yield self._loop("shuffle", [Chain([form]) for form in self._shuffles() * 3])
        yield self._loop("issue", [Chain(logic, 2)] * 8 + [scalar] * 5, fetched[:8])
        yield self._loop("load", [], fetched)
        yield self._loop("split", [], across)
        yield self._loop("store", [], self._stores())
        yield self._loop("div", [Chain([self._call("fdiv", "%k, %y")], 2)] * 6)
        yield self._loop(
            "sqrt", [Chain([f"%x = call {self.vector} @llvm.sqrt.{self._suffix}({self.vector} %y)"], 2)] * 6
        )
        yield self._loop("fma_latency", [Chain([fma], 16)])
        yield self._loop("add_latency", [Chain([add], 16)])
        yield self._loop("minmax_latency", [Chain([self._larger()], 8)])
        yield self._loop(
            "window",
            [Chain([self._call("fadd", f"%y, %w{WAITING}")]), *[Chain(logic, 8)] * 5, *[Chain(_SCALAR, 8, True)] * 5],
            self._waiting(fma),
        )

    def walks(self) -> Iterator[Loop]:
        """What goes between a core and wherever its data lies."""
        load = f"  %v@ = load volatile {self.vector}, ptr %p@, align {self.bytes}"
        store = f"  store volatile {self.vector} %k, ptr %q@, align {self.bytes}"
        past = f"  store {self.vector} %k, ptr %q@, align {self.bytes}, !nontemporal !0"
        yield self._walk("read", load)
        yield self._walk("write", store)
        yield self._walk("copy", f"{load}\n{store.replace('%k', '%v@')}")
        yield self._walk("past", past)
        yield self._walk("pages", load.replace(f"align {self.bytes}", f"align {ELEMENT}"), self.apart, PAGES)

    # instructions

    def _call(self, name: str, operands: str) -> str:
        return f"%x = {name} {self.vector} {operands}"

    def _multiply(self) -> str:
        of = self.vector
        return (
            f"%x = call {of} @llvm.fma.{self._suffix}({of} %y, {of} %k, {of} %l)"
            if self._fused
            else self._call("fmul", "%y, %k")
        )

    def _logic(self) -> list[str]:
        cast = f"%x.b = bitcast {self.vector} %y to {self._bits}\n  %x.c = {{0}} {self._bits} %x.b, {{1}}\n  %x = bitcast {self._bits} %x.c to {self.vector}"
        return [cast.format("and", "%i"), cast.format("or", "%j")]

    def _shuffles(self) -> list[str]:
        """Of four, one across the halves of a register."""
        made = [
            f"%x = shufflevector {self.vector} %y, {self.vector} poison, {mask}" for mask in (self._near, self._far)
        ]
        return [made[0], made[0], made[0], made[1]]

    def _larger(self) -> str:
        """Of two values, NaN where the one is."""
        of, truth = self.vector, self._truth
        return (
            f"%x.more = fcmp ogt {of} %k, %y\n  %x.max = select {truth} %x.more, {of} %k, {of} %y\n"
            f"  %x.nan = fcmp uno {of} %y, %y\n  %x = select {truth} %x.nan, {of} %y, {of} %x.max"
        )

    def _fetches(self, step: int, first: int = 0) -> list[str]:
        at = ((n, first + n * step) for n in range(32))
        return [
            f"  %a{n} = getelementptr i8, ptr %p, i64 {offset}\n  %f{n} = load volatile {self.vector}, ptr %a{n}, align {ELEMENT}"
            for n, offset in at
        ]

    def _stores(self) -> list[str]:
        at = ((n, n * self.bytes) for n in range(32))
        return [
            f"  %a{n} = getelementptr i8, ptr %q, i64 {offset}\n  store volatile {self.vector} %k, ptr %a{n}, align {ELEMENT}"
            for n, offset in at
        ]

    def _waiting(self, fma: str) -> list[str]:
        """Multiplications that wait for each other, and not for those of the trip before."""
        first = f"  %w0 = load volatile {self.vector}, ptr %p, align {ELEMENT}"
        return [first, *(f"  {_named(fma, f'w{n + 1}', f'w{n}')}" for n in range(WAITING))]

    # functions

    def _loop(self, name: str, chains: Sequence[Chain], others: Sequence[str] = ()) -> Loop:
        numbered = list(enumerate(chains))
        carried = [
            f"  %c{n}.0 = phi {self._kind(c)} [{'1' if c.scalar else '%k'}, %entry], [%c{n}.{c.times}, %loop]"
            for n, c in numbered
        ]
        steps = [
            f"  {_named(c.forms[t % len(c.forms)], f'c{n}.{t + 1}', f'c{n}.{t}')}"
            for n, c in numbered
            for t in range(c.times)
        ]
        kept = [f"  store volatile {self._kind(c)} %c{n}.{c.times}, ptr %q, align {ELEMENT}" for n, c in numbered]
        body = [
            "loop:",
            "  %n = phi i64 [0, %entry], [%n.next, %loop]",
            *carried,
            *others,
            *steps,
            *_again("n", "loop", 1, "%times", "end"),
        ]
        return Loop(name, self._function(name, [*body, "end:", *kept]), len(steps) + len(others))

    def _kind(self, chain: Chain) -> str:
        return "i64" if chain.scalar else self.vector

    def _walk(self, name: str, forms: str, step: int = 0, count: int = 0) -> Loop:
        """One trip moves a block, or goes to so many places `step` bytes apart."""
        step = step or self.bytes
        block = step * count or BLOCK
        body = [
            "loop:",
            "  %n = phi i64 [0, %entry], [%n.next, %done]",
            "  br label %inner",
            "inner:",
            "  %m = phi i64 [0, %loop], [%m.next, %inner]",
        ]
        for at in range(0, block, step):
            body.append(f"  %o{at} = add i64 %m, {at}")
            body += [f"  %{side}{at} = getelementptr i8, ptr %{side}, i64 %o{at}" for side in "pq"]
            body.append(forms.replace("@", str(at)))
        body += [
            *_again("m", "inner", block, "%bytes", "done"),
            "done:",
            *_again("n", "loop", 1, "%times", "end"),
            "end:",
        ]
        return Loop(name, self._function(name, body), block)

    def _function(self, name: str, body: Iterable[str]) -> str:
        of, bits = self.vector, self._bits
        operands = [
            f"  %{reg} = load {kind}, ptr %p{reg}, align {ELEMENT}"
            for reg, kind in (("k", of), ("l", of), ("i", bits), ("j", bits))
        ]
        places = [f"  %p{reg} = getelementptr i8, ptr %p, i64 {n * LINE}" for n, reg in enumerate("klij")]
        head = f"define void @{name}(ptr %p, ptr %q, i64 %bytes, i64 %times) {{\nentry:"
        return "\n".join([head, *places, *operands, "  br label %loop", *body, "  ret void", "}"])


_SCALAR = ("%x = add i64 %y, %times", "%x = xor i64 %y, %bytes")


def _named(form: str, made: str, of: str) -> str:
    return form.replace("%x", f"%{made}").replace("%y", f"%{of}")


def _mask(lanes: Iterable[int]) -> str:
    numbers = [f"i32 {lane}" for lane in lanes]
    return f"<{len(numbers)} x i32> <{', '.join(numbers)}>"


def _again(name: str, label: str, step: int, limit: str, end: str) -> list[str]:
    return [
        f"  %{name}.next = add i64 %{name}, {step}",
        f"  %{name}.more = icmp ult i64 %{name}.next, {limit}",
        f"  br i1 %{name}.more, label %{label}, label %{end}",
    ]
