"""Attention in ONNX Runtime's own domain, defined by ONNX's Attention: what its optimiser and its exporters leave."""

from __future__ import annotations

from collections.abc import Iterable

from tile_runtime.ops.text import listed
from tile_runtime.ops.values import Value

from tile_onnx.node import Node
from tile_onnx.registry import operator

DOMAIN = "com.microsoft"
FILTER = -10000.0
"""What is added to the scores of masked keys where a node states nothing else."""


class _Steps:
    """Statements in ONNX's text form."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, *lines: str) -> None:
        self.lines.extend(lines)

    def ints(self, name: str, values: Iterable[int]) -> str:
        """A constant of integers; its name."""
        self.add(f"{name} = Constant<value_ints = {list(values)}>()")
        return name

    def reshape(self, target: str, source: str, *shape: int) -> str:
        self.add(f"{target} = Reshape({source}, {self.ints(f'{target}Shape', shape)})")
        return target

    def permute(self, target: str, source: str, *order: int) -> str:
        self.add(f"{target} = Transpose<perm = {list(order)}>({source})")
        return target

    def split(self, targets: str, source: str, sizes: list[int], axis: int) -> None:
        first = targets.partition(",")[0]
        self.add(f"{targets} = Split<axis = {axis}>({source}, {self.ints(f'{first}Sizes', sizes)})")

    def function(self, inputs: str, outputs: str) -> str:
        return f"({inputs}) => ({outputs}) {{ {' '.join(self.lines)} }}"


def _filtered(steps: _Steps, node: Node, allowed: str, bias: str | None) -> str:
    """The bias of scores: `bias`, and the node's filter value where `allowed`, a mask of integers, is 0; its name."""
    value = float(node.attribute("mask_filter_value", FILTER))
    steps.add(
        f"low = Constant<value_float = {value!r}>()", "none = Constant<value_float = 0.0>()",
        f"keep = Cast<to = 9>({allowed})", "filtered = Where(keep, none, low)",
    )  # fmt: skip
    like = bias or "Q"
    steps.add(f"filterBias = CastLike(filtered, {like})")
    if bias is None:
        return "filterBias"
    steps.add(f"scoreBias = Add({bias}, filterBias)")
    return "scoreBias"


def _padding(steps: _Steps, node: Node, k: int, batch: int, keys: int) -> str:
    """Input `k`, called M, as a mask of integers that broadcasts to the scores [batch, heads, queries, keys].

    It is one of keys [batch, keys], of pairs [batch, queries, keys], counts of keys [batch], or counts and first keys
    one behind the other [2 batch].
    """
    shape = node.shape(k)
    if len(shape) == 4:
        raise node.unsupported("a mask of four dimensions is of a decoder for one kind of processor")
    if len(shape) == 3:
        return steps.reshape("pairs", "M", batch, 1, *shape[1:])
    if len(shape) == 2:
        return steps.reshape("keyMask", "M", batch, 1, 1, shape[1])
    if shape not in ((batch,), (2 * batch,)):
        raise node.unsupported(f"a mask of shape {list(shape)} for {batch} sequences")
    steps.add(f"places = Constant<value_ints = {list(range(keys))}>()", "M64 = Cast<to = 7>(M)")
    both = len(shape) and shape[0] == 2 * batch
    if both:
        steps.split("ends, starts", "M64", [batch, batch], 0)
    steps.reshape("endColumn", "ends" if both else "M64", batch, 1, 1, 1)
    steps.add("before = Less(places, endColumn)")
    if not both:
        return "before"
    steps.reshape("startColumn", "starts", batch, 1, 1, 1)
    steps.add("after = GreaterOrEqual(places, startColumn)", "within = And(before, after)")
    return "within"


def _settings(node: Node, heads: int, groups: int) -> str:
    causal = int(bool(node.attribute("unidirectional", 0)))
    scale = node.attribute("scale", 0.0)
    own = f", scale = {float(scale)!r}" if scale else ""
    return f"q_num_heads = {heads}, kv_num_heads = {groups}, is_causal = {causal}{own}"


# --- one operator for the projections and the heads --------------------------------------------------


@operator("Attention", domain=DOMAIN)
def attention(node: Node) -> tuple[Value, ...]:
    """Queries, keys and values are one product of the input; ``present`` are keys and values stacked."""
    steps = _Steps()
    steps.add("qkv = MatMul(X, W)", "all = Add(qkv, B)" if node.has(2) else "all = Identity(qkv)")
    return _attended(node, steps, "X, W, B, M, P, A, N", mask=3, past=4, bias=5)


@operator("QAttention", domain=DOMAIN)
def quantized_attention(node: Node) -> tuple[Value, ...]:
    """The same with a quantised input and weights; the bias is of floats."""
    steps = _Steps()
    steps.add("qkv = com.microsoft.MatMulIntegerToFloat(X, W, SX, SW, ZX, ZW, B)", "all = Identity(qkv)")
    return _attended(node, steps, "X, W, B, SX, SW, M, ZX, ZW, P", mask=5, past=8, bias=9)


def _attended(node: Node, steps: _Steps, inputs: str, mask: int, past: int, bias: int) -> tuple[Value, ...]:
    """Attention over the columns of ``all``; the numbers of the inputs for mask, past and bias."""
    if node.attribute("do_rotary", 0) or node.attribute("past_present_share_buffer", 0):
        raise node.unsupported("keys and values in a shared buffer (do_rotary, past_present_share_buffer)")
    (batch, length), heads, columns = node.shape(0)[:2], node.attribute("num_heads"), node.shape(1)[-1]
    sizes = list(node.attribute("qkv_hidden_sizes", ()) or (columns // 3,) * 3)
    before = node.shape(past)[3] if node.has(past) else 0
    steps.split("Q, K, V", "all", sizes, 2)
    cache = ""
    if node.has(past):
        steps.split("oldK1, oldV1", "P", [1, 1], 0)
        old = node.shape(past)[1:]
        cache = f", {steps.reshape('oldK', 'oldK1', *old)}, {steps.reshape('oldV', 'oldV1', *old)}"
    extra = "A" if node.has(bias) else None
    if node.has(mask):
        extra = _filtered(steps, node, _padding(steps, node, mask, batch, before + length), extra)
    steps.add(f"Y, newK, newV = Attention<{_settings(node, heads, heads)}>(Q, K, V, {extra or ''}{cache})")
    if node.wants(1):
        steps.reshape("stackK", "newK", 1, batch, heads, before + length, sizes[1] // heads)
        steps.reshape("stackV", "newV", 1, batch, heads, before + length, sizes[2] // heads)
        steps.add("present = Concat<axis = 0>(stackK, stackV)")
    return node.defined(steps.function(inputs, "Y, present" if node.wants(1) else "Y"))


# --- heads only --------------------------------------------------------------------------------------


@operator("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(node: Node) -> tuple[Value, ...]:
    """Queries, keys and values apart, or packed by heads; keys and values may come as [batch, heads, keys, cells]."""
    steps, heads = _Steps(), node.attribute("num_heads")
    operands, keys = _unpacked(node, steps, heads)
    if node.has(3):
        operands = _biased(node, steps, operands)
    past = node.shape(6)[2] if node.has(6) else 0
    extra = "A" if node.has(5) else None
    if node.has(4):
        extra = _filtered(steps, node, _padding(steps, node, 4, node.shape(0)[0], past + keys), extra)
    cache = ", PK, PV" if node.has(6) else ""
    steps.add(f"Y, newK, newV = Attention<{_settings(node, heads, heads)}>({listed(operands)}, {extra or ''}{cache})")
    outputs = ("Y", "newK", "newV")[: max(1, node.count)]
    return node.defined(steps.function("Q, K, V, B, M, A, PK, PV", listed(outputs)))


def _unpacked(node: Node, steps: _Steps, heads: int) -> tuple[list[str], int]:
    """Names of queries, keys and values [batch, places, heads * cells], and the number of keys."""
    batch, length = node.shape(0)[:2]
    if not node.has(1):
        steps.split("q5, k5, v5", "Q", [1, 1, 1], 3)
        wide = heads * node.shape(0)[-1]
        return [steps.reshape(f"{n}3", f"{n}5", batch, length, wide) for n in "qkv"], length
    if not node.has(2):
        steps.split("k5, v5", "K", [1, 1], 3)
        keys, wide = node.shape(1)[1], heads * node.shape(1)[-1]
        return ["Q", *(steps.reshape(f"{n}3", f"{n}5", batch, keys, wide) for n in "kv")], keys
    if node.rank(1) == 4:
        keys = node.shape(1)[2]
        order = [steps.permute(f"{n}4", n.upper(), 0, 2, 1, 3) for n in "kv"]
        return ["Q", *(steps.reshape(f"{n[0]}3", n, batch, keys, heads * node.shape(k)[3])
                       for k, n in enumerate(order, 1))], keys  # fmt: skip
    return ["Q", "K", "V"], node.shape(1)[1]


def _biased(node: Node, steps: _Steps, operands: list[str]) -> list[str]:
    """The operands with the bias, which has those of queries, keys and values one behind the other.

    Keys and values that come by heads have theirs already.
    """
    size = node.shape(0)[-1] * (node.attribute("num_heads") if not node.has(1) else 1)
    steps.split("biasQ, biasK, biasV", "B", [size, size, node.shape(3)[0] - 2 * size], 0)
    taken = 1 if node.has(2) and node.rank(1) == 4 else 3
    steps.add(*(f"{n}Biased = Add({n}, bias{b})" for n, b in zip(operands[:taken], "QKV", strict=False)))
    return [f"{n}Biased" for n in operands[:taken]] + operands[taken:]


@operator("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(node: Node) -> tuple[Value, ...]:
    """Causal attention of grouped heads; new keys and values are written behind those that the cache holds.

    Input 5 has the number of keys of each sequence less 1, input 6 the largest number of them.
    """
    _check_groups(node)
    steps, heads, groups = _Steps(), node.attribute("num_heads"), node.attribute("kv_num_heads")
    batch, length, wide = node.shape(0)
    total = node.ints(6)[0]
    cells = wide // (heads + 2 * groups) if not node.has(1) else wide // heads
    operands = ["Q", "K", "V"]
    if not node.has(1):
        operands = ["q", "k", "v"]
        steps.split("q, k, v", "Q", [heads * cells, groups * cells, groups * cells], 2)
    first = total == length
    steps.add("one = Constant<value_ints = [1]>()", "L64 = Cast<to = 7>(L)")
    steps.reshape("last", "L64", batch)
    steps.add("valid = Add(last, one)")
    steps.ints("length", [length])
    steps.add("before = Sub(valid, length)" if not first else "before = Sub(last, last)")
    by_heads = _by_heads(node, steps, operands, (heads, groups, groups), (batch, length, cells))
    if node.attribute("do_rotary", 0):
        by_heads = _rotated(node, steps, by_heads, (batch, length))
    caches = _written(
        node, steps, by_heads[1:], (batch, groups, max(total, node.shape(3)[2] if node.has(3) else 0), cells)
    )
    steps.add(f"Y4 = Attention<{_window(node)}>({by_heads[0]}, {listed(caches)}, A, , {'' if first else ', valid'})")
    steps.permute("Yt", "Y4", 0, 2, 1, 3)
    steps.reshape("Y", "Yt", batch, length, heads * cells)
    outputs = ("Y", *caches)[: max(1, node.count)]
    return node.defined(steps.function("Q, K, V, PK, PV, L, T, COS, SIN, I, A", listed(outputs)))


def _check_groups(node: Node) -> None:
    refused = {"smooth_softmax": 0, "k_quant_type": "NONE", "v_quant_type": "NONE", "qk_output": 0}
    for name, plain in refused.items():
        if node.attribute(name, plain) not in (plain, -1):
            raise node.unsupported(f"its {name} is {node.attribute(name)}")
    if any(node.has(k) for k in range(11, 16)):
        raise node.unsupported("sinks, scales of quantised caches and normalisations of heads are not known")


def _by_heads(
    node: Node, steps: _Steps, operands: list[str], heads: tuple[int, ...], sizes: tuple[int, int, int]
) -> list[str]:
    """The operands as [batch, heads, places, cells]."""
    batch, length, cells = sizes
    for name, count in zip(operands, heads, strict=True):
        steps.reshape(f"{name}Apart", name, batch, length, count, cells)
        steps.permute(f"{name}Heads", f"{name}Apart", 0, 2, 1, 3)
    return [f"{name}Heads" for name in operands]


def _rotated(node: Node, steps: _Steps, operands: list[str], sizes: tuple[int, int]) -> list[str]:
    """Queries and keys turned by their places, which the node gives, or which follow those before."""
    batch, length = sizes
    if node.has(9):
        steps.reshape("places", "I", batch, length)
    else:
        steps.ints("counted", range(length))
        steps.reshape("offset", "before", batch, 1)
        steps.add("places = Add(offset, counted)")
    turn = int(node.attribute("rotary_interleaved", 0))
    cells = 2 * node.shape(7)[1]
    for name in operands[:2]:
        steps.add(f"{name}Turned = RotaryEmbedding<interleaved = {turn}, rotary_embedding_dim = {cells}>({name}, COS, SIN, places)")  # fmt: skip
    return [f"{name}Turned" for name in operands[:2]] + operands[2:]


def _written(node: Node, steps: _Steps, operands: list[str], shape: tuple[int, int, int, int]) -> list[str]:
    """Caches of keys and values, of `shape`, with the new ones in their places."""
    if not node.has(3) or node.shape(3)[2] == 0:
        more = shape[2] - node.shape(0)[1]
        return [_lengthened(steps, name, more) for name in operands]
    made: list[str] = []
    for cache, name in zip(("PK", "PV"), operands, strict=True):
        old = _lengthened(steps, cache, shape[2] - node.shape(3)[2])
        steps.add(f"new{cache} = TensorScatter<axis = 2>({old}, {name}, before)")
        made.append(f"new{cache}")
    return made


def _lengthened(steps: _Steps, name: str, more: int) -> str:
    """A cache with `more` empty places at its end."""
    if more <= 0:
        return name
    steps.add(f"{name}Long = Pad({name}, {steps.ints(f'{name}Pads', (0, 0, 0, 0, 0, 0, more, 0))})")
    return f"{name}Long"


def _window(node: Node) -> str:
    """Attributes of a causal attention that may look back only so far."""
    scale, cap = float(node.attribute("scale", 0.0)), float(node.attribute("softcap", 0.0))
    far = node.attribute("local_window_size", -1)
    texts = [f"scale = {scale!r}"] if scale else []
    texts += [f"softcap = {cap!r}"] if cap else []
    texts += [f"left_window_size = {far - 1}"] if far > 0 else []
    return listed(["is_causal = 1", *texts])


@operator("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(node: Node) -> tuple[Value, ...]:
    """Pairs of numbers turned by their place; one place stands for those of a sequence that begins there."""
    if node.attribute("is_packed_batching", 0) or node.attribute("scale", 1.0) != 1.0:
        raise node.unsupported("is_packed_batching and scale are not known")
    steps, part, shape = _Steps(), node.attribute("rotary_embedding_dim", 0), node.shape(0)
    batch, length = shape[0], shape[-2]
    cells = part or 2 * node.shape(2)[1]
    heads = node.attribute("num_heads", 0) or (shape[-1] // cells if len(shape) == 3 else 0)
    steps.add("places = Identity(I)")
    if node.shape(1) in ((), (1,)):
        steps.ints("counted", range(length))
        steps.ints("sizes", (batch, length))
        steps.lines[0] = "row = Add(I, counted)"
        steps.add("places = Expand(row, sizes)")
    own = f", num_heads = {heads}" if len(shape) == 3 else ""
    turn = f"interleaved = {int(node.attribute('interleaved', 0))}, rotary_embedding_dim = {part}{own}"
    steps.add(f"Y = RotaryEmbedding<{turn}>(X, COS, SIN, places)")
    return node.defined(steps.function("X, I, COS, SIN", "Y"))


@operator("EmbedLayerNormalization", domain=DOMAIN)
def embed_and_normalise(node: Node) -> tuple[Value, ...]:
    """Embeddings of words, places and segments, added and normalised; counts of keys of a mask are output 1."""
    steps = _Steps()
    steps.ints("counted", range(node.shape(0)[1]))
    steps.add("words = Gather(WORDS, IDS)", f"places = Gather(PLACES, {'I' if node.has(8) else 'counted'})", "both = Add(words, places)")  # fmt: skip
    total = "both"
    if node.has(1):
        steps.add("segments = Gather(SEGMENTS, KINDS)", "three = Add(both, segments)")
        total = "three"
    steps.add(f"Y = LayerNormalization<epsilon: float = @epsilon>({total}, GAMMA, BETA)", f"sum = Identity({total})")
    if node.has(7):
        steps.add("M32 = Cast<to = 6>(M)", f"counts = ReduceSum<keepdims = 0>(M32, {steps.ints('along', [1])})")
    else:
        steps.add(f"empty = ConstantOfShape({steps.ints('many', [node.shape(0)[0]])})", "counts = Cast<to = 6>(empty)")
    outputs = ("Y", "counts", "sum")[: max(1, node.count)]
    return node.defined(steps.function("IDS, KINDS, WORDS, PLACES, SEGMENTS, GAMMA, BETA, M, I", listed(outputs)))
