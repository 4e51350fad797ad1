"""The classes that are measured on a GPU, by device time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from classes.draw import Draw
from classes.table import Class, Drawn, Limits

LIMITS = Limits(operations=1.2e12, elements=2e8)
SEMIRING = Limits(operations=1e10, elements=1e8)
"""The reference builds all pairs of a row, one row after the other."""
HALVES = ("float16", "bfloat16")
FLOAT16_ROW = 1 << 15
"""Elements whose exponentials float16 can add: the sum of a longer row is infinite."""


def _square(d: Draw) -> Drawn:
    size = d.size(512, 8192)
    return "matmul", {"m": size, "k": size, "n": size, "layout": d.pick("nn", "nn", "nt", "tn")}


def _odd(d: Draw) -> Drawn:
    m, k, n = (d.size(511, 4097) for _ in range(3))
    return "matmul", {"m": m, "k": k, "n": n, "layout": d.pick("nn", "nt", "tn", "tt")}


def _skinny(d: Draw) -> Drawn:
    wide, thin = d.size(2048, 16384), d.size(16, 128)
    m, k, n = d.pick((thin, wide, thin), (wide, thin, wide), (thin, wide, d.size(512, 8192)))
    return "matmul", {"m": m, "k": k, "n": n, "layout": d.pick("nn", "nt")}


def _batched(d: Draw) -> Drawn:
    return "batched-matmul", {"b": d.size(8, 256), "m": d.size(64, 512), "k": d.size(64, 512), "n": d.size(64, 512)}


def _conv(**options: tuple[int, ...]) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        side = d.size(14, 224)
        channels = {"ci": d.pick(3, 64, d.size(16, 512)), "co": d.size(32, 512)}
        values = {name: d.pick(*choices) for name, choices in options.items()}
        start = {"n": d.size(4, 64), "size": f"{side}x{side}"}
        return "conv", {**start, **channels, **values, "layout": d.pick("last", "first")}

    return draw


def _depthwise(d: Draw) -> Drawn:
    channels, side = d.size(32, 512), d.size(28, 224)
    values = {"ci": channels, "co": channels, "kernel": d.pick(3, 5), "groups": channels}
    return "conv", {"n": d.size(4, 64), "size": f"{side}x{side}", **values, "layout": d.pick("last", "first")}


def _grouped(d: Draw) -> Drawn:
    groups, side = d.pick(2, 4, 32), d.size(14, 112)
    channels = {"ci": groups * d.size(4, 64), "co": groups * d.size(4, 64), "kernel": d.pick(1, 3), "groups": groups}
    return "conv", {"n": d.size(4, 64), "size": f"{side}x{side}", **channels, "layout": d.pick("last", "first")}


def _conv3(d: Draw) -> Drawn:
    side = d.size(12, 40)
    channels = {"ci": d.size(16, 64), "co": d.size(16, 128)}
    return "conv", {"n": d.size(2, 8), "size": f"{side}x{side}x{side}", **channels, "layout": d.pick("last", "first")}


def _rows(name: str, longest: int = 1 << 24) -> Callable[[Draw], Drawn]:
    """Few long rows, many short ones, and tall columns."""

    def draw(d: Draw) -> Drawn:
        length = d.size(16, longest)
        others = d.size(max(1, (1 << 21) // length), max(2, (1 << 27) // length))
        shape, over = d.pick((f"{others}x{length}", "1"), (f"{length}x{others}", "0"))
        return name, {"shape": shape, "over": over}

    return draw


def _any_axes(name: str) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        rank = d.pick(2, 3, 4)
        return name, {"shape": d.shape(rank, 1 << 20, 1 << 27), "over": d.axes(rank)}

    return draw


def _batch_norm(d: Draw) -> Drawn:
    n, side, channels = d.size(8, 64), d.size(14, 112), d.size(16, 512)
    shape, over = d.pick((f"{n}x{channels}x{side}x{side}", "023"), (f"{n}x{side}x{side}x{channels}", "012"))
    return "layer-norm", {"shape": shape, "over": over}


def _permute(d: Draw) -> Drawn:
    rank = d.pick(2, 3, 4, 5)
    return "permute", {"shape": d.shape(rank, 1 << 20, 1 << 27), "order": d.order(rank)}


def _pool(d: Draw) -> Drawn:
    side, window = d.size(28, 224), d.pick(2, 3)
    values = {"n": d.size(4, 64), "size": side, "channels": d.size(16, 256), "window": window}
    return "max-pool", {**values, "stride": d.pick(1, 2), "layout": d.pick("last", "first")}


def _laplace(d: Draw) -> Drawn:
    return "laplace", {"h": d.size(1024, 16384), "w": d.size(1024, 8192)}


def _heat(d: Draw) -> Drawn:
    return "heat", {"d": d.size(64, 512), "h": d.size(64, 512), "w": d.size(64, 512)}


def _blur(d: Draw) -> Drawn:
    return "blur", {"h": d.size(1024, 8192), "w": d.size(1024, 8192), "taps": d.pick(3, 5, 9, 15, 31)}


def _scan(d: Draw) -> Drawn:
    return "cumulative-rows", {"m": d.size(64, 8192), "n": d.size(64, 8192), "axis": d.pick(0, 1)}


def _chain(d: Draw) -> Drawn:
    return d.pick("chain", "math-chain"), {"shape": d.shape(d.pick(1, 2, 3), 1 << 20, 1 << 27)}


def _broadcast(d: Draw) -> Drawn:
    rank = d.pick(2, 3, 4)
    return "broadcast", {"shape": d.shape(rank, 1 << 20, 1 << 27), "over": d.axes(rank, most=rank - 1)}


def _matrix(kind: Callable[[Draw], Drawn]) -> Callable[[Draw], Drawn]:
    """The same in a dtype that matrix instructions take; float32 is rounded to TF32."""

    def draw(d: Draw) -> Drawn:
        name, values = kind(d)
        return name, {**values, "dtype": d.pick("float32", *HALVES)}

    return draw


def _gradient(kind: Callable[[Draw], Drawn]) -> Callable[[Draw], Drawn]:
    """All gradients."""

    def draw(d: Draw) -> Drawn:
        name, values = kind(d)
        return f"{name}-gradient", values

    return draw


def _attention(d: Draw) -> Drawn:
    length = d.size(1024, 16384)
    return "attention", {"b": d.pick(1, 2, 4), "h": d.pick(8, 16), "s": length, "d": d.pick(64, 128)}


def _half(kind: Callable[[Draw], Drawn]) -> Callable[[Draw], Drawn]:
    """The same in a dtype of 16 bits."""

    def draw(d: Draw) -> Drawn:
        name, values = kind(d)
        return name, {**values, "dtype": d.pick(*HALVES)}

    return draw


def _max_plus(d: Draw) -> Drawn:
    return "max-plus", {"m": d.size(512, 2048), "k": d.size(128, 1024), "n": d.size(512, 2048)}


def _distances(d: Draw) -> Drawn:
    return "distances", {"m": d.size(512, 4096), "n": d.size(512, 4096), "k": d.size(16, 256), "norm": d.pick(1, 2)}


MATMULS = (_square, _skinny, _odd, _batched)
CONVOLUTIONS = (
    _conv(kernel=(3,)), _conv(kernel=(1,), stride=(1, 2)), _depthwise, _conv(kernel=(5, 7), stride=(2,)), _grouped,
    _conv(kernel=(3,), dilation=(2,)), _conv3,
)  # fmt: skip
DENSE = (_conv(kernel=(3,)), _conv(kernel=(1,)), _conv(kernel=(3, 7), stride=(2,)))
"""Convolutions whose channels all meet."""
MOVES = (
    _rows("softmax"), _permute, _any_axes("reduce"), _batch_norm, _laplace, _rows("layer-norm"), _pool, _scan,
    _rows("reduce"), _chain, _blur, _rows("log-sum-exp"), _heat, _broadcast,
)  # fmt: skip
PEERS = ("torch",)

CLASSES: Mapping[str, Class] = {
    "matmul": Class(0.7, 0.95, MATMULS, LIMITS, PEERS),
    "convolution": Class(0.7, 1.1, CONVOLUTIONS, LIMITS, PEERS),
    "memory-bound": Class(0.7, 1.3, MOVES, LIMITS, PEERS, share=0.6),
    "half precision": Class(
        1 / 1.1,
        None,
        tuple(
            _half(k)
            for k in (
                _square,
                _conv(kernel=(1, 3)),
                _rows("softmax", FLOAT16_ROW),
                _permute,
                _chain,
                _batched,
                _laplace,
            )
        ),
        LIMITS,
        against="float32",
    ),
    "matrix products": Class(
        0.6, None, tuple(_matrix(k) for k in (_square, _odd, _skinny, _batched)), LIMITS, PEERS, reduced=True
    ),
    "matrix convs": Class(0.5, 0.8, tuple(map(_matrix, DENSE)), LIMITS, PEERS, reduced=True),
    "matrix gradients": Class(0.5, 0.7, tuple(_matrix(_gradient(k)) for k in DENSE), LIMITS, PEERS, reduced=True),
    "attention": Class(0.6, None, (_half(_attention),), LIMITS, PEERS, reduced=True),
    "attention gradients": Class(0.5, None, (_half(_gradient(_attention)),), LIMITS, PEERS, reduced=True),
    "semirings": Class(0.5, None, (_max_plus, _distances), SEMIRING, against="issue slots"),
}
