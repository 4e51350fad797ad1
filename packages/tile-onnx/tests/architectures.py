"""Small networks of many kinds, in ONNX's text form as exporters write them; weights are drawn from a seed.

In a text, ``{name: sizes}`` is a weight of that name and shape, ``{name = numbers}`` a constant of integers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx_models import model

Array = np.ndarray[Any, Any]

_WEIGHT = re.compile(r"\{(\w+): ([\d ]+)\}")
_NUMBERS = re.compile(r"\{(\w+) = ([-\d ]+)\}")


@dataclass(frozen=True, slots=True)
class Network:
    """A graph as text, and the shapes of several calls; inputs of integers are drawn below `classes`."""

    text: str
    calls: Sequence[Mapping[str, tuple[int, ...]]]
    opset: int = 17
    classes: int = 20

    def proto(self) -> onnx.ModelProto:
        rng = np.random.default_rng(0)
        constants: dict[str, Array] = {}
        for name, sizes in _WEIGHT.findall(self.text):
            shape = tuple(map(int, sizes.split()))
            inner = max(1, int(np.prod(shape[1:])) if len(shape) > 2 else shape[0])
            constants[name] = (rng.standard_normal(shape) / np.sqrt(inner)).astype(np.float32)
            if name.endswith("_variance"):
                constants[name] = 0.5 + np.abs(constants[name])
        for name, values in _NUMBERS.findall(self.text):
            constants[name] = np.array([int(v) for v in values.split()], np.int64)
        plain = _NUMBERS.sub(r"\1", _WEIGHT.sub(r"\1", self.text))
        return model(plain, opset=self.opset, **constants)

    def feeds(self) -> list[dict[str, Array]]:
        """Inputs of every call."""
        kinds = {i.name: i.type.tensor_type.elem_type for i in self.proto().graph.input}
        rng = np.random.default_rng(1)
        return [{n: self._drawn(rng, s, kinds[n]) for n, s in call.items()} for call in self.calls]

    def _drawn(self, rng: np.random.Generator, shape: tuple[int, ...], kind: int) -> Array:
        if kind == onnx.TensorProto.FLOAT:
            return rng.standard_normal(shape).astype(np.float32)
        return rng.integers(0, self.classes, shape)


def _attention(prefix: str, source: str, target: str, width: int, heads: int, mask: str = "") -> str:
    """Attention as an exporter writes it out, over the shapes of its input."""
    cells = width // heads
    parts = " ".join(
        f"{prefix}{n} = MatMul({source}, {{{prefix}W{n}: {width} {width}}}) {prefix}{n}4 = Reshape({prefix}{n}, {prefix}apart)"
        f" {prefix}{n}h = Transpose<perm = {order}>({prefix}{n}4)"
        for n, order in (("q", "[0, 2, 1, 3]"), ("k", "[0, 2, 3, 1]"), ("v", "[0, 2, 1, 3]"))
    )
    masked = f"{prefix}m = Add({prefix}d, {mask})" if mask else f"{prefix}m = Identity({prefix}d)"
    return f"""
        {prefix}n = Shape<start = 0, end = 2>({source})
        {prefix}apart = Concat<axis = 0>({prefix}n, {{{prefix}heads = {heads} {cells}}})
        {prefix}joint = Concat<axis = 0>({prefix}n, {{{prefix}wide = {width}}}) {parts}
        {prefix}s = MatMul({prefix}qh, {prefix}kh) {prefix}root = Constant<value_float = {float(np.sqrt(cells))!r}>()
        {prefix}d = Div({prefix}s, {prefix}root) {masked} {prefix}p = Softmax<axis = -1>({prefix}m)
        {prefix}o = MatMul({prefix}p, {prefix}vh) {prefix}t = Transpose<perm = [0, 2, 1, 3]>({prefix}o)
        {prefix}r = Reshape({prefix}t, {prefix}joint) {target} = MatMul({prefix}r, {{{prefix}Wo: {width} {width}}})"""


def _normalised(prefix: str, source: str, target: str, width: int) -> str:
    """Layer normalisation written out, as opsets below 17 have it."""
    return f"""
        {prefix}mean = ReduceMean<axes = [-1]>({source}) {prefix}c = Sub({source}, {prefix}mean)
        {prefix}two = Constant<value_float = 2.0>() {prefix}sq = Pow({prefix}c, {prefix}two)
        {prefix}var = ReduceMean<axes = [-1]>({prefix}sq) {prefix}eps = Constant<value_float = 0.00001>()
        {prefix}e = Add({prefix}var, {prefix}eps) {prefix}sd = Sqrt({prefix}e) {prefix}u = Div({prefix}c, {prefix}sd)
        {prefix}g = Mul({prefix}u, {{{prefix}scale: {width}}}) {target} = Add({prefix}g, {{{prefix}shift: {width}}})"""


def _batch_normal(name: str, channels: int) -> str:
    return ", ".join(f"{{{name}_{p}: {channels}}}" for p in ("scale", "shift", "mean", "variance"))


IMAGES = [{"x": (1, 3, 16, 20)}, {"x": (2, 3, 21, 13)}]
WORDS = [{"ids": (1, 6)}, {"ids": (3, 9)}]
_IMAGE = "(float[N, 3, H, W] x) =>"

NETWORKS = {
    "residual blocks": Network(
        f"""{_IMAGE} (float[N, K] y) {{
        a = Conv<pads = [3, 3, 3, 3], strides = [2, 2]>(x, {{w0: 8 3 7 7}}) b = BatchNormalization(a, {_batch_normal("n0", 8)})
        c = Relu(b) d = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(c)
        e = Conv<pads = [1, 1, 1, 1]>(d, {{w1: 8 8 3 3}}) f = BatchNormalization(e, {_batch_normal("n1", 8)}) g = Relu(f)
        h = Conv<pads = [1, 1, 1, 1]>(g, {{w2: 8 8 3 3}}, {{b2: 8}}) s = Add(h, d) r = Relu(s) p = GlobalAveragePool(r)
        q = Flatten(p) y = Gemm<transB = 1>(q, {{w3: 5 8}}, {{b3: 5}}) }}""",
        IMAGES,
    ),
    "inverted bottleneck with squeeze and excitation": Network(
        f"""{_IMAGE} (float[N, 8, A, B] y) {{
        a = Conv(x, {{w0: 8 3 1 1}}) floor = Constant<value_float = 0.0>() six = Constant<value_float = 6.0>() z = Clip(a, floor, six)
        e = Conv(z, {{w1: 24 8 1 1}}, {{b1: 24}}) f = HardSwish(e)
        d = Conv<group = 24, pads = [2, 2, 2, 2]>(f, {{w2: 24 1 5 5}}) g = BatchNormalization(d, {_batch_normal("n", 24)})
        m = ReduceMean<axes = [2, 3]>(g) s = Conv(m, {{w3: 6 24 1 1}}) t = Relu(s) u = Conv(t, {{w4: 24 6 1 1}})
        v = HardSigmoid<alpha = 0.16666667>(u) k = Mul(g, v) o = Conv(k, {{w5: 8 24 1 1}}) y = Add(o, z) }}""",
        IMAGES,
    ),
    "shuffled groups": Network(
        """(float[N, 8, H, W] x) => (float[N, 8, H, W] y) {
        a = Conv<group = 4>(x, {w0: 8 2 1 1}) s = Shape(a) n = Gather(s, {zero = 0}) h = Gather(s, {two = 2}) w = Gather(s, {three = 3})
        five = Concat<axis = 0>(n, {split = 4 2}, h, w) b = Reshape(a, five) c = Transpose<perm = [0, 2, 1, 3, 4]>(b)
        four = Concat<axis = 0>(n, {whole = 8}, h, w) d = Reshape(c, four) l, r = Split<axis = 1>(d, {halves = 4 4})
        e = Conv<group = 4, pads = [1, 1, 1, 1]>(r, {w1: 4 1 3 3}) y = Concat<axis = 1>(e, l) }""",
        [{"x": (1, 8, 6, 7)}, {"x": (2, 8, 5, 9)}],
    ),
    "a net that goes down and up again": Network(
        f"""{_IMAGE} (float[N, 2, H, W] y) {{
        a = Conv<pads = [1, 1, 1, 1]>(x, {{w0: 8 3 3 3}}, {{b0: 8}}) r = Relu(a) d = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(r)
        c = Conv<pads = [1, 1, 1, 1]>(d, {{w1: 8 8 3 3}}) n = InstanceNormalization(c, {{g: 8}}, {{h: 8}}) l = LeakyRelu<alpha = 0.1>(n)
        t = ConvTranspose<strides = [2, 2]>(l, {{w2: 8 8 2 2}}, {{b2: 8}}) s = Shape(r) u = Shape(t) m = Sub(s, u)
        z = Mul(m, {{none = 0 0 0 0}}) p = Concat<axis = 0>(z, m) k = Pad(t, p)
        last = Slice(s, {{from = 2}}, {{to = 4}}, {{along = 0}}) first = Slice(s, {{start = 0}}, {{end = 2}}, {{axis = 0}})
        sizes = Concat<axis = 0>(first, last) o = Resize<mode = "linear", coordinate_transformation_mode = "align_corners">(l, , , sizes)
        j = Concat<axis = 1>(k, r, o) f = Conv(j, {{w3: 2 24 1 1}}) y = Softmax<axis = 1>(f) }}""",
        IMAGES,
    ),
    "a detector's head": Network(
        """(float[N, 12, H, W] x) => (float[N, M, 4] y) {
        s = Shape(x) n = Gather(s, {zero = 0}) h = Gather(s, {two = 2}) w = Gather(s, {three = 3})
        shape = Concat<axis = 0>(n, {anchors = 3 4}, h, w) a = Reshape(x, shape) b = Transpose<perm = [0, 1, 3, 4, 2]>(a)
        i = Constant<value_int = 0>() one = Constant<value_int = 1>() hs = Squeeze(h) ws = Squeeze(w)
        rows = Range(i, hs, one) columns = Range(i, ws, one) hw = Concat<axis = 0>(h, w)
        down = Unsqueeze(rows, {last = 1}) gy = Expand(down, hw) gx = Expand(columns, hw)
        ys = Unsqueeze(gy, {end = 2}) xs = Unsqueeze(gx, {end2 = 2}) g = Concat<axis = 2>(xs, ys) grid = Cast<to = 1>(g)
        v = Sigmoid(b) xy, wh = Split<axis = 4>(v, {parts = 2 2}) m = Add(xy, grid) square = Constant<value_float = 2.0>()
        q = Pow(wh, square) k = Mul(q, {sizes: 1 3 1 1 2}) o = Concat<axis = 4>(m, k)
        flat = Concat<axis = 0>(n, {rest = -1 4}) y = Reshape(o, flat) }""",
        [{"x": (1, 12, 4, 5)}, {"x": (2, 12, 3, 7)}],
    ),
    "a patch transformer": Network(
        f"""(float[N, 3, 16, 16] x) => (float[N, 5] y) {{
        a = Conv<strides = [4, 4]>(x, {{w0: 16 3 4 4}}, {{b0: 16}}) s = Shape<start = 0, end = 1>(a)
        f = Concat<axis = 0>(s, {{rest = 16 -1}}) b = Reshape(a, f) c = Transpose<perm = [0, 2, 1]>(b)
        t = Concat<axis = 0>(s, {{token = 1 16}}) k = Expand({{class: 1 1 16}}, t) d = Concat<axis = 1>(k, c)
        e = Add(d, {{places: 1 17 16}}) {_normalised("l", "e", "g", 16)} {_attention("h", "g", "m", 16, 4)} r = Add(m, e)
        u = LayerNormalization(r, {{n1: 16}}, {{n2: 16}}) v = MatMul(u, {{w1: 16 32}}) v0 = Constant<value_float = 1.4142135>()
        v1 = Div(v, v0) v2 = Erf(v1) v3 = Constant<value_float = 1.0>() v4 = Add(v2, v3) v5 = Mul(v, v4)
        v6 = Constant<value_float = 0.5>() v7 = Mul(v5, v6) o = MatMul(v7, {{w2: 32 16}}) p = Add(o, r)
        first = Constant<value_int = 0>() q = Gather<axis = 1>(p, first) y = Gemm(q, {{w3: 16 5}}) }}""",
        [{"x": (1, 3, 16, 16)}, {"x": (2, 3, 16, 16)}],
    ),
    "a causal language model": Network(
        f"""(int64[N, T] ids) => (float[N, T, 20] y) {{
        e = Gather({{words: 20 16}}, ids) s = Shape(ids) l = Gather(s, {{one = 1}}) ls = Squeeze(l) z = Constant<value_int = 0>()
        o = Constant<value_int = 1>() r = Range(z, ls, o) p = Gather({{places: 12 16}}, r) x = Add(e, p)
        sq = Concat<axis = 0>(l, l) above = Constant<value_int = 1>()
        low = ConstantOfShape<value = float[1] {{-10000}}>(sq) m = Trilu<upper = 1>(low, above)
        {_normalised("n", "x", "g", 16)} {_attention("h", "g", "a", 16, 4, "m")} b = Add(x, a)
        t = Transpose<perm = [1, 0]>(words) y = MatMul(b, t) }}""",
        WORDS,
    ),
    "rotated queries and shared keys, with a cache": Network(
        """(float[N, T, 16] x, float[N, 2, P, 4] pk, float[N, 2, P, 4] pv) => (float[N, T, 16] y, float[N, 2, S, 4] k, float[N, 2, S, 4] v) {
        n = Shape<start = 0, end = 2>(x) qs = Concat<axis = 0>(n, {hq = 4 4}) ks = Concat<axis = 0>(n, {hk = 2 4})
        q0 = MatMul(x, {wq: 16 16}) q1 = Reshape(q0, qs) q = Transpose<perm = [0, 2, 1, 3]>(q1)
        k0 = MatMul(x, {wk: 16 8}) k1 = Reshape(k0, ks) k2 = Transpose<perm = [0, 2, 1, 3]>(k1)
        v0 = MatMul(x, {wv: 16 8}) v1 = Reshape(v0, ks) v2 = Transpose<perm = [0, 2, 1, 3]>(v1)
        past = Shape<start = 2, end = 3>(pk) ps = Squeeze(past) t = Shape<start = 1, end = 2>(x) ts = Squeeze(t) all = Add(ps, ts)
        one = Constant<value_int = 1>() places = Range(ps, all, one) pf = Cast<to = 1>(places) col = Unsqueeze(pf, {last = 1})
        angle = Mul(col, {speed: 1 2}) twice = Concat<axis = 1>(angle, angle) c = Cos(twice) s = Sin(twice)
        qa, qb = Split<axis = 3>(q, {two = 2 2}) qn = Neg(qb) qt = Concat<axis = 3>(qn, qa) qc = Mul(q, c) qd = Mul(qt, s) qr = Add(qc, qd)
        ka, kb = Split<axis = 3>(k2, {two2 = 2 2}) kn = Neg(kb) kt = Concat<axis = 3>(kn, ka) kc = Mul(k2, c) kd = Mul(kt, s) kr = Add(kc, kd)
        k = Concat<axis = 2>(pk, kr) v = Concat<axis = 2>(pv, v2) length = Shape<start = 2, end = 3>(k) batch = Shape<start = 0, end = 1>(k)
        wide = Concat<axis = 0>(batch, {groups = 2 2}, length, {cells = 4}) ku = Unsqueeze(k, {at = 2}) kw = Expand(ku, wide)
        vu = Unsqueeze(v, {at2 = 2}) vw = Expand(vu, wide) flat = Concat<axis = 0>(batch, {heads = 4}, length, {cells2 = 4})
        kf = Reshape(kw, flat) vf = Reshape(vw, flat) kT = Transpose<perm = [0, 1, 3, 2]>(kf) sc = MatMul(qr, kT)
        ls = Squeeze(length) zero = Constant<value_int = 0>() every = Range(zero, ls, one) line = Unsqueeze(places, {side = 1})
        seen = LessOrEqual(every, line) low = Constant<value_float = -3.4e38>() msc = Where(seen, sc, low) p = Softmax<axis = -1>(msc)
        o = MatMul(p, vf) ot = Transpose<perm = [0, 2, 1, 3]>(o) os = Concat<axis = 0>(n, {out = 16}) of = Reshape(ot, os)
        x2 = Mul(of, of) ms = ReduceMean<axes = [-1]>(x2) eps = Constant<value_float = 0.000001>() me = Add(ms, eps) rt = Sqrt(me)
        rs = Reciprocal(rt) y = Mul(of, rs) }""",
        [
            {"x": (1, 4, 16), "pk": (1, 2, 0, 4), "pv": (1, 2, 0, 4)},
            {"x": (2, 1, 16), "pk": (2, 2, 5, 4), "pv": (2, 2, 5, 4)},
        ],
    ),
    "a tagger that reads both ways": Network(
        """(int64[N, T] ids) => (float[N, T, 5] y) {
        e = Gather({words: 20 6}, ids) t = Transpose<perm = [1, 0, 2]>(e) s = Shape<start = 0, end = 1>(ids)
        hs = Concat<axis = 0>({two = 2}, s, {size = 4}) h = ConstantOfShape<value = float[1] {0}>(hs)
        a, ah, ac = LSTM<hidden_size = 4, direction = "bidirectional">(t, {w: 2 16 6}, {r: 2 16 4}, {bias: 2 32}, , h, h)
        b = Transpose<perm = [0, 2, 1, 3]>(a) f = Reshape(b, {flat = 0 0 -1})
        g, gh = GRU<hidden_size = 4, linear_before_reset = 1>(f, {v: 1 12 8}, {q: 1 12 4}, {c: 1 24})
        gt = Squeeze(g, {dim = 1}) gs = Transpose<perm = [1, 0, 2]>(gt) d = MatMul(gs, {o: 4 5}) y = LogSoftmax<axis = -1>(d) }""",
        WORDS,
    ),
    "gated dilated convolutions": Network(
        """(float[N, 4, T] x) => (float[N, 3, T] y) {
        p = Pad(x, {pads = 0 0 4 0 0 0}) c = Conv<dilations = [4]>(p, {w0: 8 4 2}, {b0: 8}) a, b = Split<axis = 1>(c, {halves = 4 4})
        t = Tanh(a) g = Sigmoid(b) m = Mul(t, g) r = Conv(m, {w1: 4 4 1}) z = Add(x, r) k = PRelu(z, {slope: 4 1})
        d = Conv<dilations = [2], pads = [4, 0]>(k, {w2: 3 4 3}) e = Softplus(d) h = Tanh(e) y = Mul(d, h) }""",
        [{"x": (1, 4, 16)}, {"x": (2, 4, 23)}],
    ),
    "a generator": Network(
        f"""(float[N, 6] x) => (float[N, 1, 24, 24] y) {{
        a = Gemm(x, {{w0: 6 32}}, {{b0: 32}}) b = Reshape(a, {{shape = -1 8 2 2}}) r = Elu(b)
        c = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1], kernel_shape = [4, 4]>(r, {{w1: 8 8 4 4}})
        n = BatchNormalization(c, {_batch_normal("n", 8)}) e = Relu(n)
        d = ConvTranspose<strides = [3, 3], output_padding = [1, 1], pads = [1, 1, 1, 1]>(e, {{w2: 8 4 4 4}})
        f = DepthToSpace<blocksize = 2, mode = "CRD">(d) y = Tanh(f) }}""",
        [{"x": (1, 6)}, {"x": (3, 6)}],
    ),
    "messages along the edges of a graph": Network(
        """(float[N, 6] x, int64[2, E] edges) => (float[N, 3] y, float[N, 4] top) {
        h = MatMul(x, {w0: 6 4}) a = Elu(h) s0 = Constant<value_int = 0>() s1 = Constant<value_int = 1>()
        src = Gather(edges, s0) dst = Gather(edges, s1) m = Gather(a, src) n = Shape<start = 0, end = 1>(x)
        wide = Concat<axis = 0>(n, {four = 4}) zero = ConstantOfShape<value = float[1] {0}>(wide) at = Unsqueeze(dst, {last = 1})
        sum = ScatterND<reduction = "add">(zero, at, m) like = Shape(m) index = Expand(at, like)
        low = ConstantOfShape<value = float[1] {-1000}>(wide) top = ScatterElements<axis = 0, reduction = "max">(low, index, m)
        both = Concat<axis = 1>(sum, a) y = MatMul(both, {w1: 8 3}) }""",
        [{"x": (5, 6), "edges": (2, 12)}, {"x": (7, 6), "edges": (2, 9)}],
        opset=18,
        classes=5,
    ),
    "rays through a field": Network(
        """(float[N, K, 3] points, float[N, K] depth) => (float[N, 3] colour, float[N] far) {
        u = Unsqueeze(points, {last = -1}) f = Mul(u, {speeds: 1 4}) s = Sin(f) c = Cos(f) e = Concat<axis = -1>(s, c)
        n = Shape<start = 0, end = 2>(points) w = Concat<axis = 0>(n, {size = 24}) x = Reshape(e, w) a = MatMul(x, {w0: 24 16}) r = Relu(a)
        o = MatMul(r, {w1: 16 4}) raw, dense = Split<axis = 2>(o, {parts = 3 1}) rgb = Sigmoid(raw) d = Squeeze(dense, {end = 2}) g = Softplus(d)
        one = Constant<value_int = 1>() t = CumSum(g, one) m = Neg(t) v = Exp(m) q = Mul(v, g) l = Unsqueeze(q, {end2 = 2}) k = Mul(l, rgb)
        colour = ReduceSum<keepdims = 0>(k, {along = 1}) z = Mul(q, depth) far = Einsum<equation = "nk->n">(z) }""",
        [{"points": (2, 5, 3), "depth": (2, 5)}, {"points": (3, 8, 3), "depth": (3, 8)}],
    ),
    "experts chosen for each word": Network(
        """(float[N, T, 8] x) => (float[N, T, 8] y) {
        s = MatMul(x, {gate: 8 4}) p = Softmax<axis = -1>(s) v, i = TopK<axis = -1>(p, {two = 2}) n = ReduceSum(v, {last = -1}) g = Div(v, n)
        shape = Shape(p) z = ConstantOfShape<value = float[1] {0}>(shape) w = ScatterElements<axis = 2>(z, i, g)
        h = Einsum<equation = "ntd,edf->ntef">(x, {up: 4 8 6}) a = Sigmoid(h) b = Mul(a, h)
        o = Einsum<equation = "ntef,efd,nte->ntd">(b, {down: 4 6 8}, w) y = Add(o, x) }""",
        [{"x": (1, 5, 8)}, {"x": (2, 3, 8)}],
    ),
}
