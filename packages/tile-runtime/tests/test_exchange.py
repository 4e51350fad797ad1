"""Arrays of other libraries go in and out without copies."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from tile_ir.diagnostics import TileTypeError
from tile_ir.dtype import DType
from tile_runtime import exchange

ADD = tile.Function("function (A, B) -> (C) { C = A + B; }")
DTYPES = [d for d in DType if d is not DType.BFLOAT16]


class Foreign:
    """An array that speaks nothing but DLPack."""

    def __init__(self, array: Any, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return exchange.exported(self.array, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


@pytest.mark.parametrize("dtype", [*DTYPES, DType.BFLOAT16], ids=str)
def test_the_memory_is_the_same_there_and_back(dtype: DType) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype.numpy)
    tensor = tile.from_dlpack(Foreign(array), "interp")
    assert tensor.dtype is dtype and np.shares_memory(tensor.host, array)
    back = exchange.imported(tensor)
    assert np.shares_memory(back, array)
    np.testing.assert_array_equal(back, array)


def test_memory_lives_as_long_as_somebody_has_it() -> None:
    array = np.arange(6).astype(DType.BFLOAT16.numpy)
    alone = sys.getrefcount(array)
    unused = exchange.exported(array)
    assert sys.getrefcount(array) > alone
    del unused
    gc.collect()
    assert sys.getrefcount(array) == alone
    view = exchange.imported(Foreign(array))[1:]
    gc.collect()
    assert sys.getrefcount(array) > alone and view.tolist() == [1, 2, 3, 4, 5]
    del view
    gc.collect()
    assert sys.getrefcount(array) == alone


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16], ids=str)
def test_older_libraries_say_no_version(dtype: DType) -> None:
    class Older(Foreign):
        def __dlpack__(self) -> Any:
            return exchange.exported(self.array)

    array = np.arange(6).astype(dtype.numpy)
    tensor = tile.from_dlpack(Older(array), "interp")
    assert np.shares_memory(tensor.host, array)
    assert np.asarray(exchange.imported(tensor)).tolist() == [0, 1, 2, 3, 4, 5]
    tensor.__dlpack__()  # NumPy cannot tell whether it may be written to: a copy


def test_strides_and_nothing() -> None:
    array = np.arange(12).reshape(3, 4).astype(DType.BFLOAT16.numpy)
    np.testing.assert_array_equal(exchange.imported(Foreign(array.T)), array.T)
    np.testing.assert_array_equal(tile.from_dlpack(Foreign(array.T), "interp").numpy(), array.T)
    assert exchange.imported(Foreign(array[:0])).shape == (0, 4)


def test_calls_take_them() -> None:
    ones = np.ones(3, np.float32)
    assert ADD(Foreign(ones), ones, device="interp").tolist() == [2, 2, 2]


def test_memory_elsewhere_is_refused() -> None:
    with pytest.raises(TileTypeError, match="argument 'A'"):
        ADD(Foreign(np.ones(3, np.float32), (2, 0)), np.ones(3, np.float32), device="interp")


def test_copies_when_asked_or_needed() -> None:
    tensor = tile.asarray(np.arange(3, dtype=np.float32), "interp")
    shared = np.from_dlpack(tensor)
    copied = np.from_dlpack(tensor, copy=True)
    assert np.shares_memory(shared, tensor.host) and not np.shares_memory(copied, tensor.host)


@pytest.mark.parametrize("device", ["opencl"])
def test_contents_elsewhere_are_copied(device: str) -> None:
    if not any(d.id.startswith(device) for d in tile.devices()):
        pytest.skip(f"no {device}")
    tensor = tile.asarray(np.arange(3, dtype=np.float32), device)
    with pytest.raises(BufferError, match="mmap_current"):
        tensor.__dlpack__(copy=False)
    assert np.from_dlpack(tensor).tolist() == [0, 1, 2]


def test_results_are_the_callers_kind() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(3, dtype=torch.float32)
    total = ADD(x, x)
    assert isinstance(total, torch.Tensor) and total.tolist() == [0, 2, 4]
    narrow = x.to(torch.bfloat16)
    total = ADD(narrow, narrow)
    assert total.dtype is torch.bfloat16 and total.tolist() == [0, 2, 4]
    assert tile.from_dlpack(narrow).dtype is DType.BFLOAT16


class Broken(Foreign):
    """An array whose library says no, as PyTorch does of a tensor that requires a gradient; or gives a capsule again."""

    def __dlpack__(self, **options: Any) -> Any:
        if isinstance(self.array, Exception):
            raise self.array
        return self.array


def test_what_cannot_be_had_is_told() -> None:
    capsule = exchange.exported(np.ones(3, np.float32))
    exchange.imported(Broken(capsule))
    for value, said in ((capsule, "taken already"), (RuntimeError("requires grad"), "requires grad"), (3, "Capsule")):
        with pytest.raises(TileTypeError, match=said):
            tile.from_dlpack(Broken(value))
