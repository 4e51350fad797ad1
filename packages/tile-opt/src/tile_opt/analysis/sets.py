"""Questions about integer sets, answered exactly and in bounded time.

Nearly all of them take a millisecond; one that needs more is asked again in a process of its own, up to a deadline for
all questions of a contraction (`TILE_ANALYSIS_SECONDS`), and is a TileLimitError beyond. One `Sets` per rewrite of a
program; those of one compilation share the flat domains that they have found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tile_ir.diagnostics import Diagnostic, Span, TileLimitError
from tile_ir.frozen import frozen
from tile_ir.settings import Settings
from tile_ir.stripe.affine import Affine

from tile_opt.analysis.answering import Answerer, Unanswered
from tile_opt.analysis.integer_sets import MAX_PARTS as MAX_PARTS
from tile_opt.analysis.integer_sets import Bounds as Bounds
from tile_opt.analysis.integer_sets import Error, Image, Isl
from tile_opt.found_domains import found_domains

OPERATIONS = 3_000
"""ISL operations before the process is asked. The hardest question of the random tests takes 2,500 and half a
millisecond; where numbers grow long, as many take a second."""
MOST_NAMES = 16
"""Questions over more names go to the process at once: their operations are slow."""
OPTIONAL_SECONDS = 1.0
"""For a question that may remain open."""


@frozen
class Part:
    """A basic set without existentials: bounds of every dimension and the constraints (>= 0) they do not imply."""

    bounds: tuple[tuple[int, int], ...]
    constraints: tuple[Affine, ...]


class Sets:
    """What is asked about one program's sets; `seconds` is the deadline for each contraction (None: the setting)."""

    def __init__(self, operations: int = OPERATIONS, seconds: float | None = None) -> None:
        self._isl = Isl(operations)
        self._answerer = Answerer()
        self._seconds = Settings.from_environment().analysis_seconds if seconds is None else seconds
        self._left = self._seconds
        self._origin: Span | None = None
        self._name = ""
        self.domains = found_domains()
        """Flat domains by what they depend on, for `analysis.domain`."""

    def begin(self, name: str, origin: Span | None) -> None:
        """The questions that follow are about this contraction, which has the whole time to itself."""
        if (name, origin) != (self._name, self._origin):
            self._name, self._origin, self._left = name, origin, self._seconds

    def bounds(self, names: Sequence[str], constraints: Iterable[Affine]) -> Bounds | None:
        """Exact smallest and largest value of each name; None when the set is empty. The set must be bounded."""
        found = self._needed("bounds", len(names), names, [*constraints])
        return None if found is None else {name: (low, high) for name, (low, high) in found.items()}

    def implied(self, names: Sequence[str], constraints: Sequence[Affine], claim: Affine) -> bool:
        """True when `claim` >= 0 is known to hold wherever `constraints` do; False when that is too hard to tell."""
        return bool(self._optional("is_empty", len(names), names, [*constraints, claim * -1 - 1]))

    def injective(self, names: Sequence[str], constraints: Iterable[Affine], image: Sequence[Affine]) -> bool:
        """True when no two points of the set have the same image."""
        return bool(self._needed("injective", len(names), names, [*constraints], image))

    def contains(self, outer: Image, inner: Image) -> bool:
        """True when the image of `inner` is known to lie within that of `outer`; False when it is too hard to tell."""
        images = [(names, [*constraints], forms) for names, constraints, forms in (outer, inner)]
        return bool(self._optional("contains", max(len(names) for names, _, _ in images), *images))

    def uncovered(
        self,
        names: Sequence[str],
        constraints: Iterable[Affine],
        image: Sequence[Affine],
        shape: Sequence[int],
    ) -> tuple[Part, ...] | None:
        """The cells of `shape` outside the image, as few disjoint parts over names d0, d1, ….

        None when there are more than MAX_PARTS, or when they are too hard to find.
        """
        found = self._optional("uncovered", len(names), names, [*constraints], image, shape)
        if found is None:
            return None
        return tuple(Part(tuple((low, high) for low, high in bounds), tuple(forms)) for bounds, forms in found)

    def _needed(self, question: str, size: int, *arguments: Any) -> Any:
        try:
            return self._answer(question, size, arguments, self._left)
        except Unanswered:
            raise TileLimitError(self._refusal()) from None

    def _optional(self, question: str, size: int, *arguments: Any) -> Any:
        """None when it is too hard."""
        try:
            return self._answer(question, size, arguments, min(OPTIONAL_SECONDS, self._left))
        except Unanswered:
            return None

    def _answer(self, question: str, size: int, arguments: tuple[Any, ...], seconds: float) -> Any:
        if size <= MOST_NAMES or not self._seconds:
            try:
                return self._isl.answer(question, arguments)
            except Error:
                pass
        if seconds <= 0:
            raise Unanswered
        try:
            return self._answerer.ask(question, arguments, seconds)
        finally:
            self._left -= self._answerer.spent

    def _refusal(self) -> Diagnostic:
        what = f" of {self._name}" if self._name else ""
        return Diagnostic(
            "TILE-E303",
            f"the valid index tuples{what} are too complicated to analyse in {self._seconds:g} seconds",
            self._origin,
            "split the contraction, use fewer coupled indexes, or set TILE_ANALYSIS_SECONDS higher",
        )
