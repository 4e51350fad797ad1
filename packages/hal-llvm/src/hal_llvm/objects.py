"""Object files of several modules, made at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice

from tile_hal.host_queue import HostQueue

from hal_llvm import binding


def object_files(sources: Iterable[str], processor: binding.Processor, threads: int) -> list[bytes]:
    """An object file for each module's IR, in order; RuntimeError when LLVM does not accept one.

    `sources` are drawn on this thread while others compile those before. The bytes do not depend on `threads`.
    """
    rest = iter(sources)
    first = list(islice(rest, 2))
    with binding.QuickOptions():  # once, not for each of them
        if len(first) < 2 or threads < 2:
            return [_object_file(source, processor) for source in chain(first, rest)]
        return _at_once(chain(first, rest), processor, threads)


def _object_file(source: str, processor: binding.Processor) -> bytes:
    module = binding.Module(source, binding.target_machine(processor))
    try:
        return module.object_code()
    finally:
        module.close()


def _at_once(sources: Iterator[str], processor: binding.Processor, threads: int) -> list[bytes]:
    def work(source: str) -> bytes:
        with binding.own_target_machine(processor) as machine:
            module = binding.Module(source, machine)
            try:
                return module.object_code_alongside()
            finally:
                module.close()

    compiling = HostQueue(threads, "hal-llvm-compile")
    try:
        return [code.result() for code in [compiling.later(partial(work, source)) for source in sources]]
    finally:
        compiling.close()
