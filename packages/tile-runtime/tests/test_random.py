"""Keys and what is drawn by them: known bits, distributions, the same numbers everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tile_lang
import tile_runtime as tile
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_runtime import random

KEY = np.uint32([0, 42])


def test_bits_are_those_of_threefry() -> None:
    """Random123's vectors of two rounds of words, through keys that are split."""
    from tile_runtime.ops.threefry import threefry

    words = np.uint32([[0xFFFFFFFF] * 4, [0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3]]).T
    found = tile.Function(threefry()).bind({n: TensorType(DType.UINT32, (2,)) for n in "KLXY"})
    made = tile_lang.evaluate(found, dict(zip("KLXY", words, strict=True)))
    assert made["F"].tolist() == [0x1CB996FC, 0xC4923A9C]
    assert made["G"].tolist() == [0xBB002BE7, 0x483DF7A0]


def test_keys_and_splits() -> None:
    np.testing.assert_array_equal(tile.key(42), KEY)
    np.testing.assert_array_equal(tile.key(2**40 + 5), [256, 5])
    keys = np.asarray(random.split(KEY, 3))
    assert keys.tolist() == [[1832780943, 270669613], [64467757, 2916123636], [2465931498, 255383827]]
    np.testing.assert_array_equal(random.fold_in(KEY, 2), keys[2])
    first, *_ = random.split(KEY, 3)
    np.testing.assert_array_equal(first, keys[0])


def drawn(key: Any) -> dict[str, Any]:
    return {
        "uniform": random.uniform(key, (2, 3), -1, 3),
    }


def test_the_same_numbers_alone_compiled_mapped_and_on_another_device() -> None:
    keys = np.stack([KEY, KEY[::-1]])
    mapped = tile.vmap(drawn)(keys)
    for k in range(2):
        compiled = tile.jit(drawn)(keys[k])
        elsewhere = tile.jit(drawn, device="interp")(keys[k])
        for name, value in compiled.items():
            np.testing.assert_array_equal(mapped[name][k], value)
            np.testing.assert_array_equal(elsewhere[name], value)


def test_a_seed_may_be_an_argument() -> None:
    seeded = tile.jit(lambda seed: random.uniform(tile.key(seed), (3,)))
    np.testing.assert_array_equal(seeded(42), random.uniform(KEY, (3,)))


def test_distributions() -> None:
    count = 40_000
    moments = {"uniform": (0.5, 1 / 12), "normal": (0, 1)}  # categorical draws exponential ones
    for name, (mean, variance) in moments.items():
        values = getattr(random, name)(KEY, (count,)).numpy().astype(np.float64)
        assert abs(values.mean() - mean) < 5 * np.sqrt(variance / count)
        assert values.var() == pytest.approx(variance, rel=0.05)
    faces = np.bincount(random.randint(KEY, (count,), 3, 9).numpy())
    assert faces[:3].sum() == 0 and abs(faces[3:] - count / 6).max() < 5 * np.sqrt(count / 6)
    shares = np.float32([0.1, 0.2, 0.7])
    found = np.bincount(random.categorical(KEY, np.broadcast_to(np.log(shares), (count, 3))).numpy()) / count
    np.testing.assert_allclose(found, shares, atol=0.015)
    assert random.bernoulli(KEY, np.float32([0, 1, 1])).numpy().tolist() == [False, True, True]


def test_categorical_takes_the_shape_of_its_result() -> None:
    shares = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    with np.errstate(divide="ignore"):
        found = random.categorical(KEY, np.log(shares), shape=(20_000, 2)).numpy()
    for row, wanted in zip(found.T, shares, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / len(row), wanted, atol=0.02)
    with pytest.raises(tile.TileTypeError, match="broadcast to the shape"):
        random.categorical(KEY, np.zeros((4, 3), np.float32), shape=(7,))
    with pytest.raises(TypeError, match="an axis is one integer, not tuple"):
        random.categorical(KEY, np.zeros(3, np.float32), (7,))  # type: ignore[arg-type]


def test_permutations_move_rows() -> None:
    rows = np.arange(12).reshape(6, 2)
    found = random.permutation(KEY, rows).numpy()
    assert not np.array_equal(found, rows)
    np.testing.assert_array_equal(np.sort(found[:, 0]), rows[:, 0])
    np.testing.assert_array_equal(found[:, 1], found[:, 0] + 1)


WRONG = {
    "a seed below 0": (lambda: tile.key(-1), "TILE-E515"),
    "no key": (lambda: random.normal(3, (2,)), "tile.key(seed)"),
    "several keys": (lambda: random.normal(random.split(KEY), (2,)), "tile.vmap"),
    "no range": (lambda: random.randint(KEY, (2,), 5, 5), "low < high"),
    "integers that are normal": (lambda: random.normal(KEY, (2,), "int32"), "float dtype"),
    "signed bits": (lambda: random.bits(KEY, (2,), "int32"), "unsigned"),
    "too many": (lambda: random.bits(KEY, (2**31,)), "TILE-E545"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_told(name: str) -> None:
    call, text = WRONG[name]
    with pytest.raises(tile.TileError, match=text.replace("(", r"\(").replace(")", r"\)")):
        call()
