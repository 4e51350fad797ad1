"""Tensors of a model file as arrays: sizes are checked before memory is taken, and files stay inside the model's folder."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper
from tile_ir.diagnostics import Diagnostic, TileError

from tile_onnx.dtypes import numpy_dtype
from tile_onnx.values import Array, frozen

_PACKED = {
    TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.FLOAT4E2M1: 4, TensorProto.INT2: 2, TensorProto.UINT2: 2,
}  # fmt: skip
"""Bits of elements that share bytes."""


class Malformed(TileError):
    """A file or message that is no valid model."""


def malformed(message: str, hint: str | None = None) -> Malformed:
    """The error with one finding."""
    return Malformed(Diagnostic("TILE-E901", message, hint=hint))


def tensor_array(tensor: TensorProto, folder: Path | None = None, data: memoryview | None = None) -> Array:
    """The array of a tensor; `folder` is where its model lies, for data in other files, `data` are its raw data if apart."""
    where = f"tensor {tensor.name!r}"
    if any(d < 0 for d in tensor.dims):
        raise malformed(f"{where} has dimensions {list(tensor.dims)}")
    try:
        dtype = numpy_dtype(tensor.data_type)
    except (KeyError, TypeError):
        raise malformed(f"{where} has element type {tensor.data_type}, which ONNX does not define") from None
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, dtype, folder)
    if data is not None:
        _check_bytes(where, tensor, dtype, len(data))
        return _viewed(tensor, dtype, data)
    if tensor.HasField("raw_data"):
        _check_bytes(where, tensor, dtype, len(tensor.raw_data))
    try:
        return frozen(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, MemoryError, OverflowError) as problem:
        raise malformed(
            f"{where} of dimensions {list(tensor.dims)} does not hold as many elements: {problem}"
        ) from None


def _viewed(tensor: TensorProto, dtype: np.dtype[Any], data: memoryview) -> Array:
    """The array of raw data, in place where its elements need no unpacking."""
    if tensor.data_type not in _PACKED:
        return frozen(np.frombuffer(data, dtype.newbyteorder("<")).reshape(tuple(tensor.dims)))
    copy = TensorProto(dims=tensor.dims, data_type=tensor.data_type, name=tensor.name, raw_data=bytes(data))
    return frozen(numpy_helper.to_array(copy))


def stored_bytes(tensor: TensorProto, dtype: np.dtype[Any]) -> int:
    """Bytes that the elements take in a file."""
    count = math.prod(tensor.dims)
    bits = _PACKED.get(tensor.data_type)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return count * dtype.itemsize if bits is None else (count * bits + 7) // 8


def _check_bytes(where: str, tensor: TensorProto, dtype: np.dtype[Any], found: int) -> None:
    needed = stored_bytes(tensor, dtype)
    if needed != found:
        raise malformed(f"{where}, {dtype}{list(tensor.dims)}, takes {needed} bytes; there are {found}")


def _external(tensor: TensorProto, dtype: np.dtype[Any], folder: Path | None) -> Array:
    """The array in another file, which is mapped, not read, where its elements need no unpacking."""
    path, offset, length = _place(tensor, folder)
    size = path.stat().st_size
    needed = stored_bytes(tensor, dtype)
    length = size - offset if length is None else length
    where = f"external data of tensor {tensor.name!r}"
    if offset + length > size:
        raise malformed(f"{where}: {path.name} has {size} bytes, {offset + length} are wanted")
    _check_bytes(where, tensor, dtype, length)
    if not needed:
        return np.zeros(tuple(tensor.dims), dtype)
    if tensor.data_type in _PACKED:
        with path.open("rb") as file:
            file.seek(offset)
            return _viewed(tensor, dtype, memoryview(file.read(length)))
    return np.asarray(np.memmap(path, dtype.newbyteorder("<"), "r", offset, tuple(tensor.dims)))


def _place(tensor: TensorProto, folder: Path | None) -> tuple[Path, int, int | None]:
    """File, offset and length of external data."""
    entries = {e.key: e.value for e in tensor.external_data}
    where = f"external data of tensor {tensor.name!r}"
    if folder is None:
        raise malformed(f"{where} lie in another file", "load the model by its path, so that its folder is known")
    try:
        path = (folder / entries.get("location", "")).resolve()
        inside = path.is_relative_to(folder.resolve()) and not Path(entries.get("location", "")).is_absolute()
        found = inside and path.is_file()
    except (OSError, ValueError) as problem:  # ValueError: a zero byte in the path
        raise malformed(f"{where}: location {entries.get('location', '')!r:.200}: {problem}") from None
    if not inside:
        raise malformed(f"{where}: location {entries['location']!r:.200} is outside the model's folder")
    if not found:
        raise malformed(f"{where}: {folder} has no file {entries.get('location', '')!r:.200}")
    try:
        offset, length = int(entries.get("offset", "0")), entries.get("length")
        size = None if length is None else int(length)
    except ValueError:
        raise malformed(f"{where}: offset and length are numbers, not {entries!r:.200}") from None
    if offset < 0 or (size is not None and size < 0):
        raise malformed(f"{where}: offset {offset} and length {size} cannot be negative")
    return path, offset, size


def dense(tensor: Any, folder: Path | None = None) -> Array:
    """The array of a sparse tensor."""
    values, indices = tensor_array(tensor.values, folder), tensor_array(tensor.indices, folder)
    shape = tuple(tensor.dims)
    if any(d < 0 for d in shape) or math.prod(shape) > 2**40:
        raise malformed(f"sparse tensor {tensor.values.name!r} has dimensions {list(shape)}")
    whole = np.zeros(shape, values.dtype)
    try:
        if indices.ndim == 1:
            whole.reshape(-1)[indices] = values
        else:
            whole[tuple(indices.T)] = values
    except (IndexError, ValueError) as problem:
        raise malformed(f"indices of sparse tensor {tensor.values.name!r} do not fit it: {problem}") from None
    return whole
