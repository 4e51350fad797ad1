"""Where the results of a graph come from: what was given, is known, was computed, or a view of one of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from tile_torch.dtypes import to_complex


class Source(Protocol):
    """Gives one result from the call's arguments and what the program computed."""

    def __call__(self, arguments: Sequence[Any], computed: Sequence[torch.Tensor]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Given:
    """An argument itself."""

    place: int

    def __call__(self, arguments: Sequence[Any], computed: Sequence[torch.Tensor]) -> Any:
        return arguments[self.place]


@dataclass(frozen=True, slots=True)
class Fixed:
    """What is no tensor: a size, or nothing."""

    value: Any

    def __call__(self, arguments: Sequence[Any], computed: Sequence[torch.Tensor]) -> Any:
        return self.value


@dataclass(frozen=True, slots=True)
class Known:
    """A tensor whose numbers every call gives, in memory of its own."""

    tensor: torch.Tensor

    def __call__(self, arguments: Sequence[Any], computed: Sequence[torch.Tensor]) -> Any:
        return self.tensor.clone()


@dataclass(frozen=True, slots=True)
class Computed:
    """A result of the program."""

    number: int

    def __call__(self, arguments: Sequence[Any], computed: Sequence[torch.Tensor]) -> Any:
        return computed[self.number]


@dataclass(frozen=True, slots=True)
class Permuted:
    """A result whose axes lie in memory in another order; of complex numbers the parts are apart."""

    number: int
    order: tuple[int, ...]
    is_complex: bool

    def __call__(self, arguments: Sequence[Any], computed: Sequence[torch.Tensor]) -> Any:
        found = computed[self.number]
        return (to_complex(found) if self.is_complex else found).permute(self.order)


@dataclass(frozen=True, slots=True)
class Viewed:
    """What an operator shows of another result's memory."""

    before: Source
    operator: Any
    rest: tuple[Any, ...]
    named: Mapping[str, Any]

    def __call__(self, arguments: Sequence[Any], computed: Sequence[torch.Tensor]) -> Any:
        return self.operator(self.before(arguments, computed), *self.rest, **self.named)
