"""The C function of a program built ahead of time, as LLVM IR: checks, memory for intermediate results, and the steps.

It is a function of its arguments alone: no thread, lock or table of ours is in the process. Intermediate results are
in a block of memory that the next call takes over; calls at the same time have one each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from tile_hal.ahead import ABI, Entry, Parameter, Status
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.kernels import BufferKind, KernelList, Loop, Step, StepKind, Window, flat_steps, windows_in

from hal_llvm.ahead.share import SHARE, TEAM_WORDS
from hal_llvm.emit.code import Code, Module
from hal_llvm.executor import estimated_seconds
from hal_llvm.pool_ir import JOB_PARAMS, JOB_STOP

ALIGN = 64
"""Of the memory for intermediate results, and of constants."""
SHARED_SECONDS = 200e-6
"""Kernels estimated above this are shared by threads, which are started for each: that takes some ten microseconds."""
CHUNKS = 4
"""Chunks of a kernel's groups for each thread, so that one that is late holds nobody up for long."""

_BY_VALUE: Mapping[DType, str] = {
    DType.BOOL: "i8", DType.FLOAT16: "i16", DType.BFLOAT16: "i16", DType.FLOAT32: "float", DType.FLOAT64: "double",
} | {d: f"i{d.bits}" for d in DType if d.is_integer}  # fmt: skip


@frozen
class Compiled:
    """Kernels as symbols ``NAME.kernel<i>``, and the scratch bytes of each per thread."""

    kernels: KernelList
    scratch: Sequence[int]


def entry_ir(entry: Entry, compiled: Compiled) -> str:
    """IR of ``i32 @NAME(…)``, ``i32 @NAME_abi()`` and ``void @NAME_release()``; it refers to ``@NAME.fits``."""
    return _Writer(entry, compiled).text()


class _Writer:
    """Writes the body of the function, line by line."""

    def __init__(self, entry: Entry, compiled: Compiled) -> None:
        self.entry, self.kernels, self.scratch = entry, compiled.kernels, compiled.scratch
        self.code = Code(Module(), label="work")
        self._sizes = {b.id: b.bytes for b in self.kernels.buffers}
        self._sizes |= {w.id: w.bytes for w in windows_in(self.kernels.steps)}
        starts = [0]
        for size in self.kernels.arenas:
            starts.append(starts[-1] + -(-size // ALIGN) * ALIGN)
        self._arenas = starts
        self._each = -(-max(self.scratch, default=0) // ALIGN) * ALIGN
        self.space = starts[-1] + self._each * entry.threads

    # --- small pieces -------------------------------------------------------------------------------------

    def at(self, base: str, offset: int) -> str:
        return self.code.let(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base

    def keep(self, base: str, word: int, value: str) -> None:
        """Store a pointer or number in a word."""
        self.code.emit(f"store {value}, ptr {self.at(base, 8 * word)}")

    def words(self, count: int) -> str:
        """Words on the stack."""
        return self.code.alloca(f"[{count} x i64]", ALIGN)

    # --- the function -------------------------------------------------------------------------------------

    def text(self) -> str:
        name = self.entry.name
        self._job = self.words(
            JOB_PARAMS // 8 + 1 + max((len(s.buffers) for s in flat_steps(self.kernels.steps)), default=0)
        )
        self._team = self.words(TEAM_WORDS)
        self.keep(self._job, JOB_STOP // 8, "i64 0")
        self.steps(self.kernels.steps, dict(self._buffers()))
        work, self.code.lines = self.code.lines, []
        self._checks()
        signature = ", ".join(f"{_c_type(p)} %p{n}" for n, p in enumerate(self.entry.parameters))
        take, give = (self._take(), f'  call void @"{name}.give"(ptr %space)') if self.space else ("", "")
        refusals = "\n".join(f"status{s.value}:\n  ret i32 {s.value}" for s in Status)
        function = (
            f"define i32 @{name}({signature}) nounwind {{\n"
            + "\n".join([*self.code.entry, *self.code.lines, take, "  br label %work\nwork:", *work, give])
            + f"\n  br label %status{Status.OK.value}\n{refusals}\n}}\n"
        )
        return "\n".join(
            [_DECLARED, self._declared(), _memory(name, self.space), SHARE.replace("NAME", name), function]
        )

    def _declared(self) -> str:
        """What the other object files hold."""
        name = self.entry.name
        lines = [
            f'declare hidden void @"{name}.kernel{n}"(ptr, i64, i64, ptr)\ndeclare hidden void @"{name}.kernel{n}.all"(ptr)'
            for n in range(len(self.kernels.kernels))
        ]
        constants = [b.id for b in self.kernels.buffers if b.kind is BufferKind.CONST]
        lines += [f'@"{name}.constant{b}" = external hidden constant i8, align {ALIGN}' for b in constants]
        return "\n".join([*lines, f"define i32 @{name}_abi() nounwind {{\n  ret i32 {ABI}\n}}"])

    # --- arguments ----------------------------------------------------------------------------------------

    def _checks(self) -> None:
        """Each kind of refusal in turn."""
        pointers = [(f"%p{n}", p) for n, p in enumerate(self.entry.parameters) if not p.by_value and p.nbytes]
        fits = self.code.let(f'call i32 @"{self.entry.name}.fits"()')
        self._refuse(Status.PROCESSOR, [self.code.let(f"icmp eq i32 {fits}, 0")])
        self._refuse(Status.NULL, [self.code.let(f"icmp eq ptr {at}, null") for at, _ in pointers])
        self._refuse(Status.ALIGNMENT, [self._odd(at, p) for at, p in pointers if p.align > 1])
        pairs = [
            self._meets(left, right) for n, left in enumerate(pointers) for right in pointers[:n] if left[1].output
        ]
        self._refuse(Status.OVERLAP, pairs)

    def _refuse(self, status: Status, found: Sequence[str]) -> None:
        """Return the status where one of the conditions holds."""
        if not found:
            return
        any_ = found[0]
        for other in found[1:]:
            any_ = self.code.let(f"or i1 {any_}, {other}")
        self.code.branch(any_, f"status{status.value}", f"after{status.value}")
        self.code.block(f"after{status.value}")

    def _odd(self, at: str, parameter: Parameter) -> str:
        bits = self.code.let(f"and i64 {self.code.let(f'ptrtoint ptr {at} to i64')}, {parameter.align - 1}")
        return self.code.let(f"icmp ne i64 {bits}, 0")

    def _meets(self, left: tuple[str, Parameter], right: tuple[str, Parameter]) -> str:
        (a, one), (b, other) = left, right
        first = self.code.let(f"icmp ult ptr {a}, {self.code.let(f'getelementptr i8, ptr {b}, i64 {other.nbytes}')}")
        second = self.code.let(f"icmp ult ptr {b}, {self.code.let(f'getelementptr i8, ptr {a}, i64 {one.nbytes}')}")
        return self.code.let(f"and i1 {first}, {second}")

    def _take(self) -> str:
        name = self.entry.name
        return (
            f'  %space = call ptr @"{name}.take"()\n  %none = icmp eq ptr %space, null\n'
            f"  br i1 %none, label %status{Status.MEMORY.value}, label %taken\ntaken:"
        )

    def _buffers(self) -> Iterator[tuple[int, str]]:
        """The address of each buffer."""
        for number, parameter in enumerate(self.entry.parameters):
            if parameter.buffer is not None:
                yield parameter.buffer, self._argument(number, parameter)
        for info in self.kernels.buffers:
            if info.kind is BufferKind.CONST:
                yield info.id, f'@"{self.entry.name}.constant{info.id}"'
            elif info.kind is BufferKind.TEMP:
                yield info.id, self.at("%space", self._arenas[info.arena] + info.offset)

    def _argument(self, number: int, parameter: Parameter) -> str:
        if not parameter.by_value:
            return f"%p{number}"
        place = self.words(1)
        self.code.emit(f"store {_c_type(parameter)} %p{number}, ptr {place}")
        return place

    # --- steps --------------------------------------------------------------------------------------------

    def steps(self, steps: Sequence[Step], where: Mapping[int, str]) -> None:
        """The steps, one after the other, on buffers at these addresses."""
        for step in steps:
            if step.loop is not None:
                self._loop(step.loop, where)
                continue
            here, size = [where[b] for b in step.buffers], self._sizes[step.buffers[0]]
            match step.kind:
                case StepKind.FILL:
                    self.code.emit(f"call void @llvm.memset.p0.i64(ptr {here[0]}, i8 0, i64 {size}, i1 false)")
                case StepKind.COPY:
                    self.code.emit(
                        f"call void @llvm.memmove.p0.p0.i64(ptr {here[0]}, ptr {here[1]}, i64 {size}, i1 false)"
                    )
                case _:
                    self._launch(step.kernel, here)

    def _launch(self, number: int, here: Sequence[str]) -> None:
        kernel = self.kernels.kernels[number]
        total = prod(kernel.groups)
        if not total:
            return
        name, first = self.entry.name, JOB_PARAMS // 8
        for place, address in enumerate(here, first):
            self.keep(self._job, place, f"ptr {address}")
        scratch = self.at("%space", self._arenas[-1]) if self.scratch[number] else "null"
        self.keep(self._job, first + len(here), f"ptr {scratch}")
        params = self.at(self._job, JOB_PARAMS)
        seconds = estimated_seconds(kernel)
        if self.entry.threads == 1 or total == 1 or seconds < SHARED_SECONDS:
            self.code.emit(f'call void @"{name}.kernel{number}.all"(ptr {params})')
            return
        threads = min(self.entry.threads, total)
        grain = max(1, total // (threads * CHUNKS))
        fields = (f'ptr @"{name}.kernel{number}"', f"ptr {params}", f"i64 {total}", f"i64 {grain}", f"ptr {scratch}",
                  f"i64 {self._each if self.scratch[number] else 0}", "i64 0", "i64 0")  # fmt: skip
        for place, value in enumerate(fields):
            self.keep(self._team, place, value)
        self.code.emit(f'call void @"{name}.share"(ptr {self._team}, i64 {threads})')

    def _loop(self, loop: Loop, where: Mapping[int, str]) -> None:
        """The rounds: in each, windows are where they are in that round."""
        tables = {w.id: self._table(w, where) for w in loop.windows}
        code, before = self.code, self.code.label
        head, body, done = (code.fresh(part) for part in ("head", "body", "done"))
        round_ = f"%{head}.round"
        code.jump(head)
        code.block(head)
        place = code.reserve()
        code.branch(code.let(f"icmp ult i64 {round_}, {loop.count}"), body, done)
        code.block(body)
        inner = {**where, **{w.id: self._seen(w, tables[w.id], round_) for w in loop.windows}}
        self.steps(loop.steps, inner)
        following = code.let(f"add i64 {round_}, 1")
        code.fill(place, f"{round_} = phi i64 [ 0, %{before} ], [ {following}, %{code.label} ]")
        code.jump(head)
        code.block(done)

    def _table(self, window: Window, where: Mapping[int, str]) -> str:
        """What a window may be, in a table on the stack."""
        bases = (*window.first, *window.cycle)
        table = self.words(len(bases))
        for place, base in enumerate(bases):
            self.keep(table, place, f"ptr {where[base]}")
        return table

    def _seen(self, window: Window, table: str, round_: str) -> str:
        """The address of a window in a round."""
        early = self.code.let(f"icmp ult i64 {round_}, {len(window.first)}")
        again = self.code.let(f"urem i64 {round_}, {max(1, len(window.cycle))}")
        later = self.code.let(f"add i64 {again}, {len(window.first)}")
        slot = self.code.let(f"select i1 {early}, i64 {round_}, i64 {later}")
        base = self.code.let(f"load ptr, ptr {self.code.let(f'getelementptr ptr, ptr {table}, i64 {slot}')}")
        moved = self.code.let(f"add i64 {self.code.let(f'mul i64 {round_}, {window.stride}')}, {window.start}")
        offset = self.code.let(f"select i1 {early}, i64 0, i64 {moved}")
        return self.code.let(f"getelementptr i8, ptr {base}, i64 {offset}")


def _c_type(parameter: Parameter) -> str:
    return _BY_VALUE[parameter.dtype] if parameter.by_value else "ptr"


_DECLARED = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
"""


def _memory(name: str, nbytes: int) -> str:
    """Functions that give a call a block of memory, take it back for the next one, and give it back to the system."""
    return _BLOCK.replace("NAME", name).replace("BYTES", str(nbytes)).replace("ALIGN", str(ALIGN))


_BLOCK = """
@"NAME.kept" = internal global ptr null

define internal ptr @"NAME.take"() nounwind {
  %kept = atomicrmw xchg ptr @"NAME.kept", ptr null seq_cst
  %has = icmp ne ptr %kept, null
  br i1 %has, label %again, label %new
again:
  ret ptr %kept
new:
  %made = call ptr @aligned_alloc(i64 ALIGN, i64 BYTES)
  ret ptr %made
}

define internal void @"NAME.give"(ptr %block) nounwind {
  %old = atomicrmw xchg ptr @"NAME.kept", ptr %block seq_cst
  call void @free(ptr %old)
  ret void
}

define void @NAME_release() nounwind {
  call void @"NAME.give"(ptr null)
  ret void
}
"""
