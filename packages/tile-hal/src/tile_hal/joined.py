"""Libraries made of others, so that kernels that were compiled apart run as one program."""

from __future__ import annotations

from collections.abc import Sequence

from tile_hal.interfaces import Executor, Kernel, Library


class JoinedLibrary(Library):
    """The libraries of several kernel lists, for a list of all their kernels, one list's after the other's."""

    def __init__(self, parts: Sequence[tuple[Library, int]]) -> None:
        """Each library with the number of its kernels."""
        self._parts = tuple(dict.fromkeys(library for library, _ in parts))
        self._places = [(library, number) for library, count in parts for number in range(count)]

    def place(self, index: int) -> tuple[Library, int]:
        """The library that has a kernel, and the kernel's number there."""
        return self._places[index]

    def source(self) -> str:
        return "\n".join(part.source() for part in self._parts)

    def assembly(self) -> str:
        return "\n".join(part.assembly() for part in self._parts)


def prepared(executor: Executor, library: Library, index: int) -> Kernel:
    """A kernel of a library, made ready to run; TileDeviceError as `Executor.prepare`."""
    while isinstance(library, JoinedLibrary):
        library, index = library.place(index)
    return executor.prepare(library, index)
