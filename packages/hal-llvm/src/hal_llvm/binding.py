"""The part of llvmlite this package uses, with types; importing it loads LLVM.

llvmlite has no annotations, so every use of it is here.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import get_ident
from typing import Any, ClassVar

import llvmlite  # pyright: ignore[reportMissingImports]
import llvmlite.binding as llvm  # pyright: ignore[reportMissingImports]
from tile_ir import forking

LOCK = forking.rlock()
"""Held around every use of LLVM but `Alongside`, and across fork, so that a child never inherits LLVM in the middle of something."""


LAST_WITH_OPTIONS = 22
"""The latest LLVM that is known to have the options of `QuickOptions`."""

SCHEDULED_AGAIN = "znver"
"""Names of processors for which LLVM schedules instructions a second time by default."""


_ARRAY = re.compile(r"^  (%\S+) = alloca (\[.*\]).*$", re.MULTILINE)


class Alongside:
    """A stretch in which a thread is inside LLVM without the LOCK, with a module and a code generator of its own.

    Fork waits for such threads to come out, and keeps others from going in: others than the one that forks, which a signal's
    handler may have interrupted in there, or may interrupt now.
    """

    running: ClassVar[list[int]] = []
    forks: ClassVar[list[int]] = []
    """Threads that are inside, and that fork."""
    changed = forking.condition()

    @classmethod
    def wait(cls, threads: list[int]) -> None:
        """Until none of the threads is another one than this; the condition is held."""
        cls.changed.wait_for(lambda: {*threads} <= {get_ident()})

    def __enter__(self) -> None:
        with self.changed:
            self.wait(self.forks)
            self.running.append(get_ident())

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self.running.remove(get_ident())
            self.changed.notify_all()


class QuickOptions:
    """A stretch in which LLVM leaves out what takes long and gives kernels nothing.

    Its loop strength reduction took most of the time of compiling large register tiles: subscripts are computed where
    their loops are already. Scheduling once more after registers are chosen, which it does for processors of AMD, took a
    tenth: these reorder instructions themselves. The options belong to the process, so the last one out gives other users
    of LLVM the defaults back. Unknown options would end the process: later versions do without.
    """

    inside: ClassVar[list[int]] = []
    """Threads."""

    def __enter__(self) -> None:
        with LOCK:
            self.inside.append(get_ident())
            self._set(len(self.inside) == 1, True)

    def __exit__(self, *_: object) -> None:
        with LOCK:
            self.inside.remove(get_ident())
            self._set(not self.inside, False)

    def _set(self, changes: bool, quick: bool) -> None:
        if not changes or llvm.llvm_version_info[0] > LAST_WITH_OPTIONS:
            return
        llvm.set_option("hal-llvm", f"-disable-lsr={str(quick).lower()}")
        if host().cpu.startswith(SCHEDULED_AGAIN):
            llvm.set_option("hal-llvm", f"-post-RA-scheduler={str(not quick).lower()}")


def _before_fork() -> None:
    with Alongside.changed:
        Alongside.forks.append(get_ident())
        Alongside.wait(Alongside.running)
    LOCK.acquire()


def _after_fork() -> None:
    LOCK.release()
    with Alongside.changed:
        Alongside.forks.remove(get_ident())
        Alongside.changed.notify_all()


def _after_fork_in_child() -> None:
    LOCK.release()
    Alongside.forks.clear()
    for inside in (Alongside.running, QuickOptions.inside):
        inside[:] = [thread for thread in inside if thread == get_ident()]  # others are not in the child


forking.at_fork(_before_fork, _after_fork, _after_fork_in_child)


LEGACY = ("sse4a",)
"""Features whose instructions have no form beside wide registers: each ``extrq`` between such takes some hundred cycles."""


@dataclass(frozen=True, slots=True)
class Processor:
    """What code is generated for."""

    triple: str
    cpu: str
    features: str
    """LLVM's feature string: ``+avx2,-avx512f,…``."""

    @property
    def used(self) -> str:
        """The features without those that code does better without."""
        without = (f"-{name}" for name in LEGACY if f"+{name}" in self.features.split(","))
        return ",".join((self.features, *without))


@cache
def versions() -> tuple[str, str]:
    """Versions of llvmlite and LLVM."""
    return llvmlite.__version__, ".".join(str(n) for n in llvm.llvm_version_info)


@cache
def _initialize(every_target: bool) -> None:
    if llvm.llvm_version_info[0] < 20:  # later ones do it themselves
        llvm.initialize()
    if every_target:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    else:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()


@cache
def accept_inline_assembly() -> None:
    """From now on modules may have assembly in their functions; without a parser for it LLVM would end the process."""
    with LOCK:
        _initialize(False)
        llvm.initialize_native_asmparser()


@cache
def host() -> Processor:
    """This machine's processor with the features that the operating system lets programs use."""
    with LOCK:
        _initialize(False)
        features = llvm.get_host_cpu_features().flatten()
        return Processor(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)


@cache
def target_machine(processor: Processor) -> Any:
    """The code generator for a processor, kept for good.

    Small position-independent code, so that constants are addressed relative to it.
    """
    return _new_target_machine(processor)


@contextmanager
def own_target_machine(processor: Processor) -> Generator[Any]:
    """A code generator for one thread, which goes again under the LOCK like all of LLVM."""
    machine = _new_target_machine(processor)
    try:
        yield machine
    finally:
        with LOCK:
            machine.close()


def _new_target_machine(processor: Processor) -> Any:
    with LOCK:
        _initialize(processor.triple != host().triple)
        target = llvm.Target.from_triple(processor.triple)
        return target.create_target_machine(
            cpu=processor.cpu, features=processor.used, opt=2, reloc="pic", codemodel="small", jit=True
        )


class Module:
    """Parsed and verified IR in a context of its own, which frees what the global one would keep."""

    def __init__(self, ir: str, machine: Any) -> None:
        self._machine = machine
        with LOCK:
            self._context = llvm.create_context()
            self._module = self._parsed(ir)
            self._module.verify()
            if " = alloca " in ir and not self._promote():
                self._module.close()
                self._module = self._parsed(_ARRAY.sub(r"\g<0>\n  store \2 poison, ptr \1", ir))
                self._promote()

    def _parsed(self, ir: str) -> Any:
        header = f'target triple = "{self._machine.triple}"\ntarget datalayout = "{self._machine.target_data}"\n'
        return llvm.parse_assembly(header + ir, context=self._context)

    def _promote(self) -> bool:
        """Variables to registers: the only pass, because the IR is explicit about everything else.

        LLVM 22 joins vectors that fill an array where that of the last elements is stored, others behind it or not; False where the
        code is invalid then. It leaves alone arrays that are stored as a whole before.
        llvmlite keeps 1.5 KB of each pass builder, and one cannot be used twice.
        """
        options = llvm.create_pipeline_tuning_options(speed_level=1)
        builder = llvm.create_pass_builder(self._machine, options)
        manager = llvm.create_new_module_pass_manager()
        manager.add_sroa_pass()
        manager.run(self._module, builder)
        try:
            self._module.verify()
        except RuntimeError:
            return False
        return True

    def ir(self) -> str:
        """The IR after the pass."""
        with LOCK:
            return str(self._module)

    def object_code(self) -> bytes:
        """A relocatable object file."""
        with LOCK, QuickOptions():
            return bytes(self._machine.emit_object(self._module))

    def object_code_alongside(self) -> bytes:
        """The same while other threads do it, too: the code generator must be this thread's own.

        llvmlite lets one thread at a time into LLVM because its modules share a context by default; ours do not.
        """
        emit = getattr(llvm.ffi.lib.LLVMPY_TargetMachineEmitToMemory, "_cfn", None)
        if emit is None:  # another llvmlite: one at a time then
            return self.object_code()
        with LOCK:
            problem = llvm.ffi.OutputString()
        with QuickOptions(), Alongside():
            memory = emit(self._machine, self._module, 1, problem)
        with LOCK, problem:
            if not memory:
                raise RuntimeError(str(problem))
            start = llvm.ffi.lib.LLVMPY_GetBufferStart(memory)
            code = ctypes.string_at(start, llvm.ffi.lib.LLVMPY_GetBufferSize(memory))
            llvm.ffi.lib.LLVMPY_DisposeMemoryBuffer(memory)
            return code

    def assembly(self) -> str:
        """Machine code as text."""
        with LOCK, QuickOptions():
            return str(self._machine.emit_assembly(self._module))

    def close(self) -> None:
        with LOCK:
            self._module.close()
            self._context.close()


class LoadedCode:
    """Object code linked into this process; it stays while this object lives."""

    def __init__(self, objects: Sequence[bytes], symbols: Sequence[str]) -> None:
        """RuntimeError when the bytes are no object files or a symbol is missing."""
        with LOCK:
            # A linker of its own: one shared by all would keep a little of every library it ever saw. JITLink puts an
            # object's sections side by side; the older linker ends the process where they come to lie 2 GB apart.
            self._linker = llvm.create_lljit_compiler(_new_target_machine(host()), use_jit_link=True)
            builder = llvm.JITLibraryBuilder().add_current_process()
            for code in objects:
                builder.add_object_img(code)
            for symbol in symbols:
                builder.export_symbol(symbol)
            self._tracker = builder.link(self._linker, "tile")
        self.addresses: dict[str, int] = {symbol: int(self._tracker[symbol]) for symbol in symbols}

    def __del__(self, lock: Any = LOCK, leaving: Callable[[], bool] = sys.is_finalizing) -> None:
        tracker = getattr(self, "_tracker", None)
        # At exit workers may still be leaving the code, and the process's memory goes anyway.
        if tracker is not None and not leaving():
            with lock:
                tracker.close()
                self._linker.close()
