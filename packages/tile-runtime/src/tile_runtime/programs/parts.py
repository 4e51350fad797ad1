"""Programs that run in parts, each of which is compiled by itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tile_ir.diagnostics import Diagnostic, TileDeviceError

from tile_runtime.lowered import Lowered

if TYPE_CHECKING:
    from tile_opt.compiled import Compiled

Section = tuple[str, Lowered]
"""What a part is called, and its stages."""


class LoweredInParts(Lowered):
    """A program of which only the parts have stages; texts are theirs, one after the other."""

    @property
    @abstractmethod
    def sections(self) -> Sequence[Section]:
        """All parts."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """How the program is divided, and why."""

    @property
    @abstractmethod
    def no_stages(self) -> Diagnostic:
        """Why it has no stages of its own, and where they are."""

    @property
    def compiled(self) -> Compiled:  # type: ignore[override]
        """Only the parts have stages; TileDeviceError says so."""
        raise TileDeviceError(self.no_stages)

    @property
    def source(self) -> str:
        return "\n".join(part.source for _, part in self.sections)

    @property
    def asm(self) -> str:
        return "\n".join(part.asm for _, part in self.sections)

    def explain(self, *, candidates: bool = False, measure: bool = False) -> str:
        texts = [f"{name}\n{part.explain(candidates=candidates, measure=measure)}" for name, part in self.sections]
        return "\n\n".join([self.summary, *texts])
