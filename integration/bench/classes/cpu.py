"""The classes that are measured on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from classes.draw import Draw
from classes.table import Class, Drawn, Limits

LIMITS = Limits(operations=2e10, elements=3e7)
QUADRATIC = Limits(operations=2e9, elements=1e7)
"""For programs that a peer or a plain schedule handles element by element."""


def _matmul(m: tuple[int, int], k: tuple[int, int], n: tuple[int, int]) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        return "matmul", {"m": d.size(*m), "k": d.size(*k), "n": d.size(*n), "layout": d.pick("nn", "nt", "tn", "tt")}

    return draw


def _square(d: Draw) -> Drawn:
    size = d.size(100, 4096)
    return "matmul", {"m": size, "k": size, "n": size, "layout": d.pick("nn", "nn", "nt")}


def _batched(d: Draw) -> Drawn:
    return "batched-matmul", {"b": d.size(2, 64), "m": d.size(16, 512), "k": d.size(16, 512), "n": d.size(16, 512)}


def _einsum(d: Draw) -> Drawn:
    """One operand has all axes, in any order, the other and the result some of them."""
    rank = d.pick(3, 4, 5)
    left, right, out = d.order(rank), d.axes(rank, least=2), d.axes(rank, most=rank - 1)
    out = d.pick(out, out[::-1])
    left, right, out = ("".join("abcde"[int(axis)] for axis in axes) for axes in (left, right, out))
    return "einsum", {"left": left, "right": right, "out": out, "shape": d.shape(rank, 10_000, 2_000_000)}


def _gemv(side: str) -> Callable[[Draw], Drawn]:
    return lambda d: ("gemv", {"m": d.size(64, 8192), "n": d.size(64, 8192), "side": side})


def _image(d: Draw, rank: int) -> str:
    """Of any sides, or square with one that networks have."""
    sides = {1: (64, 16384), 2: (7, 128), 3: (6, 40)}
    if rank == 2 and d.pick(True, False):
        side = d.common(7, 14, 28, 56, 112, 224)
        return f"{side}x{side}"
    return "x".join(str(d.size(*sides[rank])) for _ in range(rank))


def _conv(rank: int, **options: tuple[int, ...]) -> Callable[[Draw], Drawn]:
    """Convolutions of `rank` dimensions whose kernel, stride and dilation come from the given choices."""

    def draw(d: Draw) -> Drawn:
        values = {name: d.pick(*choices) for name, choices in options.items()}
        channels = {"ci": d.pick(3, 16, d.size(3, 512)), "co": d.size(8, 512)}
        start = {"n": d.size(1, 16), "size": _image(d, rank)}
        return "conv", {**start, **channels, **values, "layout": d.pick("last", "first")}

    return draw


def _grouped(d: Draw) -> Drawn:
    groups = d.pick(2, 4, 8, 32)
    channels = {"ci": groups * d.size(2, 64), "co": groups * d.size(2, 64)}
    start = {"n": d.size(1, 8), "size": _image(d, 2)}
    return "conv", {**start, **channels, "kernel": d.pick(1, 3), "groups": groups, "layout": d.pick("last", "first")}


def _depthwise(d: Draw) -> Drawn:
    channels = d.size(16, 512)
    values = {"ci": channels, "co": channels, "kernel": d.pick(3, 5), "stride": d.pick(1, 2), "groups": channels}
    return "conv", {"n": d.size(1, 8), "size": _image(d, 2), **values, "layout": d.pick("last", "first")}


def _reduction(name: str, **options: tuple[str, ...]) -> Callable[[Draw], Drawn]:
    """Over any axes of any rank."""

    def draw(d: Draw) -> Drawn:
        rank = d.pick(1, 2, 2, 3, 3, 4)
        most = 1 if name == "softmax" else rank
        values = {"shape": d.shape(rank, 1000, 20_000_000), "over": d.axes(rank, most=most)}
        return name, {**values, **{k: d.pick(*v) for k, v in options.items()}}

    return draw


def _rows(d: Draw) -> Drawn:
    length = d.size(16, 10_000_000)
    others = d.size(1, max(1, 16_000_000 // length))
    shape, over = d.pick((f"{others}x{length}", "1"), (f"{length}x{others}", "0"))
    return d.pick("softmax", "layer-norm", "log-sum-exp", "reduce"), {"shape": shape, "over": over}


def _shaped(name: str) -> Callable[[Draw], Drawn]:
    return lambda d: (name, {"shape": d.shape(d.pick(1, 2, 3), 10_000, 16_000_000)})


def _broadcast(d: Draw) -> Drawn:
    rank = d.pick(2, 3, 4)
    return "broadcast", {"shape": d.shape(rank, 10_000, 16_000_000), "over": d.axes(rank, most=rank - 1)}


def _cast(d: Draw) -> Drawn:
    pairs = (
        ("float32", "float16"), ("float16", "float32"), ("float32", "float64"), ("float64", "float32"),
        ("uint8", "float32"), ("int32", "float32"), ("int8", "float32"), ("float32", "int32"), ("uint8", "int32"),
    )  # fmt: skip
    source, target = d.pick(*pairs)
    return "cast", {"shape": d.shape(d.pick(1, 2), 10_000, 16_000_000), "source": source, "target": target}


def _permute(d: Draw) -> Drawn:
    rank = d.pick(2, 3, 4, 5)
    dtype = d.pick("float32", "float32", "uint8", "float64")
    return "permute", {"shape": d.shape(rank, 10_000, 16_000_000), "order": d.order(rank), "dtype": dtype}


def _concatenate(d: Draw) -> Drawn:
    return "concatenate", {"m": d.size(32, 2048), "a": d.size(16, 2048), "b": d.size(16, 2048), "axis": d.pick(0, 1)}


def _pad(d: Draw) -> Drawn:
    return "pad", {
        "shape": d.shape(d.pick(2, 3), 10_000, 8_000_000),
        "before": d.pick(0, 1, 3),
        "after": d.pick(1, 2, 8),
    }


def _slice(d: Draw) -> Drawn:
    shape = f"{d.size(64, 4096)}x{d.size(64, 4096)}"
    return "slice", {"shape": shape, "start": d.pick(0, 1, 5), "step": d.pick(1, 1, 2, 3)}


def _gather(d: Draw) -> Drawn:
    return "gather", {"rows": d.size(100, 100_000), "width": d.size(1, 256), "count": d.size(1000, 100_000)}


def _attention(d: Draw) -> Drawn:
    return "attention", {"b": d.size(1, 4), "h": d.size(1, 16), "s": d.size(64, 1024), "d": d.pick(32, 64, 80, 128)}


def _layers(name: str) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        values = {"batch": d.size(8, 512), "d": d.size(64, 1024), "h": d.size(64, 1024), "g": d.size(64, 1024)}
        return name, {**values, "c": d.pick(10, d.size(10, 1000))}

    return draw


def _bottleneck(d: Draw) -> Drawn:
    narrow = d.size(16, 128)
    return "bottleneck", {"n": d.size(1, 8), "size": d.size(7, 56), "wide": 4 * narrow, "narrow": narrow}


def _blur(d: Draw) -> Drawn:
    return "blur", {"h": d.size(200, 4096), "w": d.size(200, 4096), "taps": d.pick(3, 5, 9, 15, 31)}


def _laplace(d: Draw) -> Drawn:
    return "laplace", {"h": d.size(200, 4096), "w": d.size(200, 4096)}


def _heat(d: Draw) -> Drawn:
    return "heat", {"d": d.size(20, 256), "h": d.size(20, 256), "w": d.size(20, 256)}


def _distances(d: Draw) -> Drawn:
    return "distances", {"m": d.size(64, 1024), "n": d.size(64, 1024), "k": d.size(3, 128), "norm": d.pick(1, 2)}


def _max_plus(d: Draw) -> Drawn:
    return "max-plus", {"m": d.size(32, 512), "k": d.size(32, 512), "n": d.size(32, 512)}


def _cumulative(d: Draw) -> Drawn:
    if d.pick(True, False):
        return "cumulative-sum", {"n": d.size(1000, 60_000)}
    return "cumulative-rows", {"m": d.size(16, 2048), "n": d.size(16, 2048), "axis": d.pick(0, 1)}


def _small(d: Draw) -> Drawn:
    op = d.pick("add", "multiply", "maximum", "divide", "exponential", "compare")
    return "one-operation", {"n": d.size(8, 1000), "op": op}


CLASSES: Mapping[str, Class] = {
    "matmul": Class(0.75, 1.0, (
        _square,
        _matmul((32, 128), (1024, 8192), (32, 128)),
        _square,
        _matmul((1024, 4096), (16, 128), (1024, 4096)),
        _batched,
        _matmul((64, 512), (256, 2048), (256, 4096)),
        _gemv("right"),
        _matmul((2, 48), (64, 2048), (64, 8192)),
        _gemv("left"),
    ), LIMITS, ("numpy", "torch", "onnx")),
    "several loops": Class(0.7, 1.2, (_einsum,), LIMITS, ("numpy", "torch")),
    "convolution": Class(0.75, 1.05, (
        _conv(2, kernel=(3,)),
        _conv(2, kernel=(1,), stride=(1, 1, 2)),
        _depthwise,
        _conv(2, kernel=(5, 7), stride=(1, 2)),
        _grouped,
        _conv(2, kernel=(3,), dilation=(2, 3)),
        _conv(1, kernel=(3, 5, 9), stride=(1, 2)),
        _conv(3, kernel=(3,)),
    ), LIMITS),
    "rows and columns": Class(0.75, 1.1, (
        _reduction("reduce", op=("sum", "max", "min")),
        _reduction("softmax"),
        _reduction("layer-norm"),
        _rows,
        _reduction("log-sum-exp"),
    ), LIMITS),
    "elementwise and moves": Class(0.8, 1.5, (
        _shaped("chain"),
        _permute,
        _broadcast,
        _cast,
        _concatenate,
        _permute,
        _pad,
        _shaped("math-chain"),
        _slice,
        _gather,
    ), LIMITS),
    "composed": Class(0.7, 1.2, (
        _attention,
        _layers("mlp"),
        _blur,
        _layers("mlp-gradient"),
        _laplace,
        _bottleneck,
        _heat,
        _distances,
        _max_plus,
        _cumulative,
    ), QUADRATIC),
    "calls of one operation": Class(0.1, None, (
        _small,
        lambda d: ("small-sum", {"n": d.size(8, 1000)}),
        lambda d: ("small-matmul", {"n": d.size(2, 30)}),
    ), LIMITS, ("numpy",)),
    "calls of a chain of eight": Class(0.5, None, (
        lambda d: ("chain-of-eight", {"n": d.size(8, 1000)}),
    ), LIMITS, ("numpy",)),
}  # fmt: skip
