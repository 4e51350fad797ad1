"""Rows about what people write: filters of images, sorts and searches, arrays handed over, beside what they would use else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tile_runtime as tile
from numpy.typing import NDArray
from rounds import Contestant
from rows import Contest, Limit

Array = NDArray[Any]
Prepare = Callable[[bool], Mapping[str, Contestant]]
EXAMPLES = Path(__file__).parents[1] / "examples"
KERNEL = np.array([1, 4, 6, 4, 1], np.float32) / 16
AMOUNT = np.float32(1.5)


def _random() -> np.random.Generator:
    return np.random.default_rng(0)


def _checked(contestants: Mapping[str, Contestant], rtol: float = 1e-4, atol: float = 1e-5) -> Mapping[str, Contestant]:
    """The contestants, once all have given what ours gives."""
    ours = contestants["tile"]()
    for run in contestants.values():
        for got, want in zip(_listed(run()), _listed(ours), strict=True):
            np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=rtol, atol=atol)
    return contestants


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def _opencv(run: Callable[[Any], Contestant]) -> Mapping[str, Contestant]:
    """A contestant made with OpenCV, where that is installed: an optional one, which the table misses else."""
    try:
        import cv2
    except ModuleNotFoundError:
        return {}
    return {"OpenCV": run(cv2)}


def mean(small: bool) -> Mapping[str, Contestant]:
    """3x3 means of uint16 2400x3200; that of OpenCV rounds, so that it may differ by one."""
    from peers import images

    f = tile.Function.from_file(EXAMPLES / "mean.tile")
    A = _random().integers(0, 1 << 16, (24, 32) if small else (2400, 3200)).astype(np.uint16)
    contestants = {
        "tile": lambda: f(A),
        "Numba": lambda: images.mean_alone(A),
        "Numba parallel": lambda: images.mean(A),
        **_opencv(lambda cv2: lambda: cv2.blur(A, (3, 3), borderType=cv2.BORDER_CONSTANT)),
    }
    return _checked(contestants, 0, 1)


def unsharp(small: bool) -> Mapping[str, Contestant]:
    """An unsharp mask of five taps of float32 2400x3200."""
    from peers import images

    f = tile.Function.from_file(EXAMPLES / "unsharp.tile")
    A = _random().random((24, 32) if small else (2400, 3200), np.float32)

    def in_opencv(cv2: Any) -> Contestant:
        def run() -> Array:
            blurred = cv2.sepFilter2D(A, -1, KERNEL, KERNEL, borderType=cv2.BORDER_REPLICATE)
            cv2.addWeighted(A, 1 + float(AMOUNT), blurred, -float(AMOUNT), 0, dst=blurred)
            return np.clip(blurred, 0, 1, out=blurred)

        return run

    return _checked(
        {
            "tile": lambda: f(A, KERNEL, AMOUNT),
            "Numba": lambda: images.unsharp_alone(A, KERNEL, AMOUNT),
            "Numba parallel": lambda: images.unsharp(A, KERNEL, AMOUNT),
            **_opencv(in_opencv),
        }
    )


def _along(
    text: str, shape: tuple[int, ...], in_numpy: Callable[[Array], Any], in_torch: Callable[[Any, Any], Any]
) -> Prepare:
    """A function of one array against NumPy and PyTorch."""

    def prepare(small: bool) -> Mapping[str, Contestant]:
        import torch

        f = tile.Function(text)
        x = _random().standard_normal(tuple(min(s, 200) for s in shape) if small else shape).astype(np.float32)
        t = torch.from_numpy(x)
        contestants = {"tile": lambda: f(x), "NumPy": lambda: in_numpy(x), "PyTorch": lambda: in_torch(torch, t)}
        return _checked(contestants, 1e-2, 1e-1)

    return prepare


def _largest(x: Array, count: int = 5) -> tuple[Array, Array]:
    """What NumPy has in place of top_k."""
    places = np.argpartition(x, -count, 1)[:, -count:]
    order = np.argsort(-np.take_along_axis(x, places, 1), 1)
    places = np.take_along_axis(places, order, 1)
    return np.take_along_axis(x, places, 1), places


def nearest(small: bool) -> Mapping[str, Contestant]:
    """The nearest of 4096 points in 64 dimensions for each of 2048 queries."""
    import torch

    f = tile.Function.from_file(EXAMPLES / "nearest.tile")
    queries, points = (20, 40) if small else (2048, 4096)
    q, p = (_random().standard_normal((n, 64)).astype(np.float32) + n % 7 for n in (queries, points))
    tq, tp = torch.from_numpy(q), torch.from_numpy(p)

    def found(sums: Callable[[Any], Any], q: Any, p: Any) -> Any:
        return (sums(p * p) - 2 * q @ p.T).argmin(1)

    return _checked(
        {
            "tile": lambda: f(q, p)[0],
            "NumPy": lambda: found(lambda s: s.sum(1), q, p),
            "PyTorch": lambda: found(lambda s: s.sum(1), tq, tp),
            "PyTorch cdist": lambda: torch.cdist(tq, tp).argmin(1),
        }
    )


def dlpack(small: bool) -> Mapping[str, Contestant]:
    """64 MB handed to us and back by DLPack, a hundred times: milliseconds stand for 10 microseconds."""
    array = np.ones(1 << (10 if small else 24), np.float32)

    def there_and_back() -> None:
        for _ in range(100):
            np.from_dlpack(tile.from_dlpack(array))

    return {"tile": there_and_back}


WIDE = (4096, 1000)
ROWS: dict[str, Contest | Limit] = {
    "job-mean": Contest("3×3 means of uint16 2400×3200", 0.8, mean, optional=("OpenCV",)),
    "job-unsharp": Contest("unsharp mask of float32 2400×3200", 1.0, unsharp, optional=("OpenCV",)),
    "job-cumsum": Contest(
        "cumsum of 10⁷",
        0.8,
        _along("function (X) -> (Y) { Y = cumsum(X, 0); }", (10**7,), np.cumsum, lambda torch, t: torch.cumsum(t, 0)),
    ),
    "job-sort": Contest(
        "sort of 10⁶",
        0.8,
        _along("function (X) -> (Y) { Y = sort(X, 0); }", (10**6,), np.sort, lambda torch, t: torch.sort(t).values),
    ),
    "job-argmax": Contest(
        "argmax of 4096×1000",
        0.8,
        _along("function (X) -> (Y) { Y = argmax(X, 1); }", WIDE, lambda x: x.argmax(1), lambda torch, t: t.argmax(1)),
    ),
    "job-top": Contest(
        "top_k(5) of 4096×1000",
        0.8,
        _along(
            "function (X) -> (V, I) { V, I = top_k(X, 5, 1); }",
            WIDE,
            _largest,
            lambda torch, t: tuple(torch.topk(t, 5, 1)),
        ),
    ),
    "job-nearest": Contest("nearest of 4096 points for 2048 in 64 dimensions", 0.8, nearest),
    "job-dlpack": Limit("64 MB there and back by DLPack, 100 times", 2, "ms", dlpack),
}
