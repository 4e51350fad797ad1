"""Operators of lists of tensors, which optimisers call, as the operators of their tensors one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch._C import _dispatch_get_all_op_names  # pyright: ignore[reportPrivateUsage]

aten = torch.ops.aten

PREFIX = "aten::_foreach_"


def divisions() -> Iterator[tuple[Any, Callable[..., list[Tensor]]]]:
    """Every operator of lists that changes none of them, with a function that does the same."""
    names = {n.partition(".")[0] for n in _dispatch_get_all_op_names() if n.startswith(PREFIX)}
    for name in sorted(names):
        single = SINGLES.get(name.removeprefix(PREFIX)) or getattr(aten, name.removeprefix(PREFIX), None)
        packet: Any = getattr(aten, name.removeprefix("aten::"), None)
        if single is not None and packet is not None:
            every: Iterator[Any] = (getattr(packet, overload) for overload in packet.overloads())
            yield from ((op, partial(one_by_one, op, single)) for op in every if not op._schema.is_mutable)


def one_by_one(op: Any, single: Callable[..., Tensor], *given: Any, **named: Any) -> list[Tensor]:
    """`single` of the first elements of all lists, of the second ones, and so on; what is no list is the same for all."""
    items = dict(zip((a.name for a in op._schema.arguments), given, strict=False)) | named
    if isinstance(items.get("scalars"), Tensor):
        items["scalars"] = items["scalars"].unbind()
    ordered = [items[a.name] for a in op._schema.arguments if a.name in items]
    count = next(len(cast("Sequence[Any]", v)) for v in ordered if _is_list(v))
    return [single(*(v[k] if _is_list(v) else v for v in ordered)) for k in range(count)]


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _scaled(operation: Callable[..., Tensor], x: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    return operation(x, other) if alpha == 1 else operation(x, other, alpha=alpha)


def _added(operation: Callable[..., Tensor], x: Tensor, first: Tensor, second: Tensor, value: Any = 1) -> Tensor:
    """``x + value * first * second``, or the quotient; `value` may be a tensor without dimensions."""
    if not isinstance(value, Tensor):
        return operation(x, first, second, value=value)
    return x + value * (first * second if operation is torch.addcmul else first / second)


def _extreme(operation: Callable[..., Tensor], bound: str, x: Tensor, other: Any) -> Tensor:
    return operation(x, other) if isinstance(other, Tensor) else torch.clamp(x, **{bound: other})


def _norm(x: Tensor, ord: Any = 2, dtype: torch.dtype | None = None) -> Tensor:
    return aten.linalg_vector_norm.default(x, ord, dtype=dtype)


SINGLES: Mapping[str, Callable[..., Tensor]] = {
    "add": partial(_scaled, torch.add),
    "sub": partial(_scaled, torch.sub),
    "addcmul": partial(_added, torch.addcmul),
    "addcdiv": partial(_added, torch.addcdiv),
    "maximum": partial(_extreme, torch.maximum, "min"),
    "minimum": partial(_extreme, torch.minimum, "max"),
    "max": torch.amax,
    "norm": _norm,
    "zero": torch.zeros_like,
}
"""Of names that are not those of the operator of one tensor, or whose arguments are others."""
