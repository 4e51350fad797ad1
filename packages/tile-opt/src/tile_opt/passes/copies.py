"""Copies of operands that kernels have made before them: what an earlier kernel's copy still holds is not made again.

Both gradients of a convolution read the results' gradient, often in the same order. A copy is kept for few kernels, so
that it does not lie in memory all the way from one end of a program to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tile_ir.stripe.hashing import structural_hash
from tile_ir.stripe.nodes import Block, Direction, Refinement, Statement
from tile_ir.stripe.walk import buffers_written

KEPT = 8
"""Kernels after which a copy is made anew."""
Key = tuple[str, tuple[str, ...]]
"""What a copy does, and what it reads."""


@dataclass(slots=True)
class Copies:
    """The copies that may be read again, as the kernels of a program follow one another."""

    wholes: Mapping[str, str]
    """The buffer behind each name that is a part of another one."""
    _found: dict[Key, tuple[str, int]] = field(default_factory=dict[Key, tuple[str, int]])
    """The buffer of each, and after how many kernels it was made."""
    _passed: int = 0

    def again(self, copies: Iterable[Block]) -> dict[str, str]:
        """The buffers that these would fill -> those that hold the same already."""
        return {_target(copy): self._found[key][0] for copy in copies if (key := _key(copy)) in self._found}

    def of(self, refs: Iterable[Refinement]) -> dict[str, frozenset[str]]:
        """The buffers among these, by their names in a kernel, of which there are copies, and what made each."""
        made = {r.into: frozenset(how for how, read in self._found if read == (r.source,)) for r in refs}
        return {name: hashes for name, hashes in made.items() if hashes}

    def made(self, copies: Iterable[Block]) -> None:
        """They were made just now."""
        self._found |= {_key(copy): (_target(copy), self._passed) for copy in copies}

    def passing(self, kernels: Iterable[Statement]) -> Iterator[Statement]:
        """The kernels, as they follow one another: old copies, and those of what one of them writes, are worth nothing any more."""
        for kernel in kernels:
            written = self._memory(buffers_written(kernel)) if isinstance(kernel, Block) else set[str]()
            self._passed += 1
            recent = ((key, made) for key, made in self._found.items() if self._passed - made[1] <= KEPT)
            self._found = {key: made for key, made in recent if written.isdisjoint(self._memory(key[1]))}
            yield kernel

    def _memory(self, names: Iterable[str]) -> set[str]:
        return {self.wholes.get(name, name) for name in names}


def _key(copy: Block) -> Key:
    return structural_hash(copy), tuple(r.source for r in copy.refs if r.dir is Direction.IN)


def _target(copy: Block) -> str:
    (target,) = buffers_written(copy)
    return target
