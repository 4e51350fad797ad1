"""Taking tensors apart along an axis and putting them together, for sequences and the steps of loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tile_onnx.node import Value, apply


def known(values: Sequence[Value]) -> bool:
    """Whether all of them are arrays."""
    return all(isinstance(v, np.ndarray) for v in values)


def part(value: Value, axis: int, start: int, size: int) -> Value:
    """`size` cells along an axis."""
    if isinstance(value, np.ndarray):
        return np.take(value, range(start, start + size), axis)  # pyright: ignore[reportUnknownArgumentType]
    names = _names(len(value.shape))
    source = [f"{n}+{start}" if k == axis else n for k, n in enumerate(names)]
    shape = [size if k == axis else d for k, d in enumerate(value.shape)]
    return apply(_copy(_list(names), shape, source), value)


def take(value: Value, axis: int, index: int) -> Value:
    """The cells at one place of an axis, which disappears."""
    if isinstance(value, np.ndarray):
        return np.asarray(np.take(value, index, axis))  # pyright: ignore[reportUnknownArgumentType]
    names = _names(len(value.shape))
    source = [str(index) if k == axis else n for k, n in enumerate(names)]
    rest = [k for k in range(len(names)) if k != axis]
    return apply(_copy(_list([names[k] for k in rest]), [value.shape[k] for k in rest], source), value)


def stack(values: Sequence[Value], axis: int) -> Value:
    """Tensors of one shape side by side along a new axis."""
    if known(values):
        return np.stack(values, axis)
    return _placed(values, axis, [1] * len(values), new=True)


def join(values: Sequence[Value], axis: int) -> Value:
    """Tensors one behind the other along an axis."""
    if known(values):
        return np.concatenate(values, axis)
    return _placed(values, axis, [v.shape[axis] for v in values], new=False)


def _placed(values: Sequence[Value], axis: int, sizes: Sequence[int], *, new: bool) -> Value:
    shape = list(values[0].shape)
    shape[axis : axis + (not new)] = [sum(sizes)]
    names = _names(len(shape))
    source = [n for k, n in enumerate(names) if not (new and k == axis)]
    lines: list[str] = []
    start = 0
    for k, size in enumerate(sizes):
        target = [(str(start) if new else f"{n}+{start}") if d == axis else n for d, n in enumerate(names)]
        name = "Y" if k == len(sizes) - 1 else f"Y{k}"
        rest = f" default Y{k - 1}" if k else ""
        lines.append(f"{name}[{_list(target)} : {_list(shape)}] = =(X{k}[{_list(source)}]){rest};")
        start += size
    inputs = ", ".join(f"X{k}[{_list(f'D{k}_{d}' for d in range(len(source)))}]" for k in range(len(values)))
    return apply(f"function ({inputs}) -> (Y) {{ {' '.join(lines)} }}", *values)


def _copy(target: str, shape: Sequence[int], source: Sequence[str]) -> str:
    dims = _list(f"D{k}" for k in range(len(source)))
    return f"function (X[{dims}]) -> (Y) {{ Y[{target} : {_list(shape)}] = =(X[{_list(source)}]); }}"


def _names(rank: int) -> list[str]:
    return [f"i{k}" for k in range(rank)]


def _list(items: object) -> str:
    return ", ".join(map(str, items))  # pyright: ignore[reportArgumentType, reportUnknownVariableType]
