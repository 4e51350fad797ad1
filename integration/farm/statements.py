"""Kinds of statement that can be drawn, one function each: a draft in, one or more statements added to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tile_ir.dtype import DType, promote
from tile_ir.ops import Aggregation

from farm.draft import MOST, Draft, product
from farm.turned import turned

WORK = 4096
"""Index tuples of a contraction."""
INDEXES = "ijklmn"

ANY = (
    *("{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} + {c}", "{a} * {c}", "{c} - {a}", "max({a}, {b})", "min({a}, {b})"),
    *(
        "({a} > {b} ? {a} : {b})",
        "({a} == {b} ? {c} : {a})",
        "({a} <= {c} ? {b} : {a})",
        "relu({a})",
        "{a} * {b} + {a}",
    ),
    *("({a} + {b}) * ({a} - {c})", "cond({a} < {b}, {c}, {a})", "({a} != {b} & {a} >= {c} ? {a} : {b})"),
)
"""What keeps the dtype of `a` and `b`; `c` is a small literal."""
SIGNED = ("-{a}", "abs({a})", "sign({a})", "-{a} * {b} - {a}")
INTEGER = (
    *("{a} & {b}", "{a} | {b}", "{a} ^ {c}", "~{a}", "{a} << {c}", "{a} >> {b}", "{a} / {b}", "{a} / {c}"),
    *(
        "({a} & {c}) << 3 | {b}",
        "({a} >> 1) + {b}",
        "mod({a}, {b})",
        "fmod({a}, {b})",
        "mod({a}, {c})",
        "fmod({a}, {c})",
    ),
)
FLOAT = (
    *("floor({a})", "ceil({a} + {b})", "{a} * 0.5", "round({a} * 0.25)", "{a} / 4", "tanh({a})", "exp(-abs({a}))"),
    *(
        "sigmoid({a})",
        "sin({a}) + {b}",
        "sqrt({a} * {a} + 1)",
        "{a} / ({b} * {b} + 1)",
        "log(abs({a}) + 1)",
        "cos({b})",
    ),
    *(
        "expm1(-abs({a}))",
        "log1p(abs({a}))",
        "erf({a} * 0.25)",
        "erfc({a})",
        "round_even({a} * 0.5)",
        "trunc({a} + {b})",
    ),
    *("fmod({a}, {c})", "mod({a}, {b})", "atan2({a}, {b})", "asinh({a})", "gelu({a})", "silu({a})", "softplus({a})"),
    *("({a} > {b} ? {a} : -inf)", "where(isfinite({a}), {a}, {c})", "clamp({a}, -1, {b})"),
    *("pow({a}, 2)", "recip({a} * {a} + 2)", "stop_gradient({a}) * {b}", "atan({a})", "pow(abs({a}) + 1, 0.5)"),
)
CONVERTED: Mapping[str, DType] = {
    "as_int({a}, 32)": DType.INT32, "as_float({a}, 32)": DType.FLOAT32, "as_uint({a}, 8)": DType.UINT8,
    "as_int({a}, 8)": DType.INT8, "as_bool({a}, 1)": DType.BOOL, "as_int({a}, 64)": DType.INT64,
    "as_float({a}, 64)": DType.FLOAT64, "as_float({a}, 16)": DType.FLOAT16, "as_uint({a}, 16)": DType.UINT16,
    "as_float(as_bfloat({a}, 16), 32)": DType.FLOAT32, "isnan({a})": DType.BOOL, "isinf({a})": DType.BOOL,
    "bits_as_uint(as_int({a}, 16))": DType.UINT16, "bits_as_int(as_float({a}, 32))": DType.INT32,
    "{a} > {c}": DType.BOOL, "{a} == {b}": DType.BOOL, "{a} <= {b}": DType.BOOL,
}  # fmt: skip


def templates(dtype: DType) -> Sequence[str]:
    """Expressions that keep `dtype`."""
    signed = SIGNED if dtype.is_float or dtype.is_signed else ()
    return (*ANY, *(FLOAT if dtype.is_float else INTEGER), *signed)


def elementwise(draft: Draft) -> None:
    """An expression of one or two operators over tensors that broadcast together."""
    random = draft.random
    a = draft.any()
    shape = draft.values[a].shape
    text = random.choice(templates(draft.dtype))
    if random.random() < 0.3:
        text = random.choice(templates(draft.dtype)).replace("{a}", f"({text})", 1)
    b = draft.beside(shape) if "{b}" in text else a
    made = text.format(a=a, b=b, c=random.randrange(4))
    draft.define(f"{{0}} = {made};", draft.dtype, shape)
    if draft.dtype is DType.BFLOAT16 or random.random() > 0.15:
        return
    text = random.choice([*CONVERTED])
    made = text.format(a=a, b=draft.beside(shape), c=random.randrange(4))
    draft.define(f"{{0}} = {made};", CONVERTED[text], shape)


def conditional(draft: Draft) -> None:
    """A choice by a boolean tensor."""
    a = draft.any()
    shape = draft.values[a].shape
    b = draft.beside(shape)
    draft.define(f"{{0}} = {draft.input(shape, DType.BOOL)} ? {a} : {b};", draft.dtype, shape)


# --- contractions ------------------------------------------------------------------------------------


class Domain:
    """Index variables of a contraction: the range each is meant to have, and whether a subscript alone bounds it."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.ranges: dict[str, int] = {}
        self.bounded: set[str] = set()

    @property
    def full(self) -> bool:
        return len(self.ranges) == len(INDEXES)

    def fresh(self, size: int) -> str:
        name = INDEXES[len(self.ranges)]
        self.ranges[name] = size
        return name

    def subscript(self, size: int) -> str:
        """A formula for a dimension of `size`: most often an index alone, an old one where its range is the same."""
        random = self.draft.random
        old = [n for n, r in self.ranges.items() if r == size]
        again = self.full or bool(old and random.random() < 0.5)
        name = random.choice(old or [*self.ranges]) if again else self.fresh(size)
        if random.random() < 0.75 or (self.full and random.random() < 0.8):
            self.bounded.add(name)
            return name
        return self._odd(name, size)

    def _odd(self, name: str, size: int) -> str:
        """Strides, offsets, flips, windows, fractions and constants."""
        random = self.draft.random
        window = name if self.full else self.fresh(random.choice((1, 2, 3)))
        reach = self.ranges[window]
        kind = random.choice(("window", "window", "stride", "flip", "shift", "half", "dilated", "constant"))
        if kind != "half":
            self.ranges[name] = {"stride": -(-size // 2), "window": size, "dilated": size}.get(kind, size)
        return {
            "window": f"{name} + {window} - {reach // 2}", "dilated": f"{name} + 2*{window}", "stride": f"2*{name} + {window}",
            "flip": f"{max(size - 1, 0)} - {name}", "shift": f"{name} {random.choice('+-')} 1",
            "half": f"({name} + {window})/2", "constant": str(random.randrange(max(size, 1))),
        }[kind]  # fmt: skip

    def constraints(self) -> str:
        """What bounds the indexes that no subscript bounds by itself, and now and then one more."""
        random = self.draft.random
        wanted = [n for n in self.ranges if n not in self.bounded and random.random() < 0.95]
        if self.ranges and random.random() < 0.12:
            wanted.append(random.choice([*self.ranges]))
        texts = [f"{n} < {max(0, self.ranges[n] - random.choice((0, 0, 0, 1)))}" for n in wanted]
        if len(self.ranges) > 1 and random.random() < 0.1:
            a, b = random.sample([*self.ranges], 2)
            texts.append(f"{a} - {b} < {random.randrange(1, 5)}")
        return "".join(f", {t}" for t in texts)

    @property
    def tuples(self) -> int:
        return product([*self.ranges.values()])


def contraction(draft: Draft) -> None:
    """Any aggregation and body over any subscripts."""
    random = draft.random
    domain = Domain(draft)
    count, body = random.choice(((1, "{0}"), (1, "{0}"), (2, "{0} * {1}"), (2, "{0} * {1}"), (2, "{0} + {1}"),
                                 (2, "{0} == {1}"), (3, "{0} == {1} ? {2}")))  # fmt: skip
    names = [_operand(draft) for _ in range(count)]
    refs = [f"{n}[{', '.join(domain.subscript(s) for s in draft.values[n].shape)}]" for n in names]
    if domain.tuples > WORK:
        return
    agg = random.choice((*Aggregation, Aggregation.SUM, Aggregation.SUM, Aggregation.MAX))
    dtypes = [draft.values[n].dtype for n in names]
    element = dtypes[-1] if count == 3 else DType.BOOL if "==" in body else _promoted(dtypes)
    _contract(draft, domain, agg, body.format(*refs), element)


def _operand(draft: Draft) -> str:
    other = draft.random.random() < 0.06
    return draft.input(draft.shape(), draft.random.choice([*DType])) if other and len(draft.inputs) < 4 else draft.any()


def _promoted(dtypes: Sequence[DType]) -> DType:
    found = dtypes[0]
    for dtype in dtypes[1:]:
        found = promote(found, dtype)
    return found


def _contract(draft: Draft, domain: Domain, agg: Aggregation, body: str, element: DType) -> None:
    random = draft.random
    names = [*domain.ranges]
    random.shuffle(names)
    kept = names if agg is Aggregation.ASSIGN else names[: random.randrange(len(names) + 1)]
    formulas, sizes, texts = _output(draft, domain, kept)
    if product(sizes) > MOST:
        return
    default = ""
    if random.random() < 0.08:
        default = f" default {draft.input(sizes, element)}"
    target = f"{{0}}[{', '.join(formulas)} : {', '.join(texts)}]" if formulas else "{0}[]"
    draft.define(f"{target} = {agg.symbol}({body}){domain.constraints()}{default};", element, sizes)


def _output(draft: Draft, domain: Domain, names: Sequence[str]) -> tuple[list[str], list[int], list[str]]:
    """Subscripts, sizes, and the sizes as text."""
    formulas, sizes, texts = list[str](), list[int](), list[str]()
    for name in names:
        reach = domain.ranges[name]
        kind = draft.random.choice(("plain",) * 9 + ("stride", "shift", "half", "flip", "cut"))
        formula, size = {
            "plain": (name, reach), "stride": (f"2*{name}", 2 * reach), "shift": (f"{name} + 1", reach + 2),
            "half": (f"{name}/2", (reach + 1) // 2), "flip": (f"{max(reach - 1, 0)} - {name}", reach),
            "cut": (name, max(reach - 1, 0)),
        }[kind]  # fmt: skip
        if kind in ("plain", "cut"):
            domain.bounded.add(name)
        formulas.append(formula)
        sizes.append(size)
        texts.append(draft.spelled(size))
    if draft.random.random() < 0.1:
        formulas, sizes, texts = [*formulas, "0"], [*sizes, 1], [*texts, "1"]
    return formulas, sizes, texts


def matmul(draft: Draft) -> None:
    """A sum of products over one index, in any layout of the three, perhaps batched, perhaps of another semiring."""
    random = draft.random
    domain = Domain(draft)
    m, n, k = (domain.fresh(draft.size()) for _ in range(3))
    batch = [domain.fresh(random.choice((1, 2, 3)))] if random.random() < 0.25 else []
    domain.bounded |= {*domain.ranges}
    if domain.tuples > WORK:
        return
    left, right, out = [*batch, m, k], [*batch, k, n], [*batch, m, n]
    for indexes in (left, right, out):
        if random.random() < 0.5:
            random.shuffle(indexes)
    refs = [f"{draft.input([domain.ranges[x] for x in xs])}[{', '.join(xs)}]" for xs in (left, right)]
    agg, body = random.choice((("+", " * "),) * 4 + ((">", " + "), ("<", " + "), (">", " * ")))
    sizes = [domain.ranges[x] for x in out]
    texts = ", ".join(draft.spelled(s) for s in sizes)
    draft.define(f"{{0}}[{', '.join(out)} : {texts}] = {agg}({body.join(refs)});", draft.dtype, sizes)


def window(draft: Draft) -> None:
    """A stencil, pool or convolution along one dimension or two."""
    random = draft.random
    a = draft.any(random.choice((1, 2, 2, 3)))
    shape = draft.values[a].shape
    along = set(random.sample(range(len(shape)), min(len(shape), random.choice((1, 1, 2)))))
    stride, reach = random.choice((1, 1, 1, 2)), random.choice((2, 3, 3))
    steps = f"{stride}*" if stride > 1 else ""
    outer, taps = "xyz"[: len(shape)], "ijk"[: len(shape)]
    subscripts = [f"{steps}{o} + {t} - {reach // 2}" if d in along else o
                  for d, (o, t) in enumerate(zip(outer, taps, strict=True))]  # fmt: skip
    sizes = [-(-s // stride) if d in along else s for d, s in enumerate(shape)]
    limits = "".join(f", {taps[d]} < {reach}" for d in sorted(along))
    body = f"{a}[{', '.join(subscripts)}]"
    if random.random() < 0.5:
        kernel = draft.input([reach] * len(along))
        body, limits = f"{body} * {kernel}[{', '.join(taps[d] for d in sorted(along))}]", ""
    texts = ", ".join(draft.spelled(s) for s in sizes)
    draft.define(f"{{0}}[{', '.join(outer)} : {texts}] = {random.choice('++><')}({body}){limits};", draft.dtype, sizes)


def rows(draft: Draft) -> None:
    """Reductions of rows or columns that are combined with what was reduced: softmax, normalisation, distances to an extreme."""
    random = draft.random
    a = draft.any(random.choice((2, 2, 3)))
    shape = draft.values[a].shape
    axis = random.randrange(len(shape))
    names = "xyz"[: len(shape)]
    target = ", ".join("0" if d == axis else n for d, n in enumerate(names))
    sizes = [1 if d == axis else s for d, s in enumerate(shape)]
    texts = ", ".join("1" if d == axis else draft.spelled(s) for d, s in enumerate(shape))

    def reduced(of: str, agg: str) -> str:
        return draft.define(
            f"{{0}}[{target} : {texts}] = {agg}({draft.use(of)}[{', '.join(names)}]);", draft.dtype, sizes
        )

    difference = draft.define(f"{{0}} = {a} - {draft.use(reduced(a, random.choice('><+')))};", draft.dtype, shape)
    if draft.dtype.is_float and random.random() < 0.5:
        power = draft.define(f"{{0}} = exp(-abs({draft.use(difference)}));", draft.dtype, shape)
        draft.define(f"{{0}} = {power} / ({draft.use(reduced(power, '+'))} + 1);", draft.dtype, shape)


def scan(draft: Draft) -> None:
    """Prefix sums, products and extremes along one dimension, forwards or backwards."""
    random = draft.random
    a = draft.any(random.choice((1, 2)))
    shape = draft.values[a].shape
    axis, names = random.randrange(len(shape)), "xy"[: len(shape)]
    moved = f"{names[axis]} {random.choice('-+')} k"
    subscripts = ", ".join(moved if d == axis else n for d, n in enumerate(names))
    limit = draft.spelled(shape[axis]) if random.random() < 0.8 else str(max(shape[axis] // 2, 1))
    texts = ", ".join(draft.spelled(s) for s in shape)
    agg = random.choice("++><*")
    draft.define(f"{{0}}[{', '.join(names)} : {texts}] = {agg}({a}[{subscripts}]), k < {limit};", draft.dtype, shape)


# --- moving data ---------------------------------------------------------------------------------------


def transpose(draft: Draft) -> None:
    """Another order of the dimensions, by an assignment."""
    a = draft.any(draft.random.choice((2, 2, 3, 4)))
    shape = draft.values[a].shape
    names = "wxyz"[: len(shape)]
    order = [*range(len(shape))]
    draft.random.shuffle(order)
    texts = ", ".join(draft.spelled(shape[d]) for d in order)
    target = ", ".join(names[d] for d in order)
    draft.define(f"{{0}}[{target} : {texts}] = =({a}[{', '.join(names)}]);", draft.dtype, [shape[d] for d in order])


def joined(draft: Draft) -> None:
    """Parts of matrices side by side, as a concatenation is written: each is the default of the next."""
    random, axis = draft.random, draft.random.randrange(2)
    first = draft.any(2)
    across = draft.values[first].shape[1 - axis]
    alike = [n for n, t in draft.values.items() if t.dtype is draft.dtype and len(t.shape) == 2]
    fitting = [n for n in alike if draft.values[n].shape[1 - axis] == across]
    parts = [first, *random.choices(fitting, k=random.choice((1, 1, 2)))]
    cuts = [sorted(random.choices(range(draft.values[n].shape[axis] + 1), k=2)) for n in parts]
    total, place, whole = sum(stop - start for start, stop in cuts), 0, ""
    shape = (across, total) if axis else (total, across)
    for name, (start, stop) in zip(parts, cuts, strict=True):
        into, of = (f"i, j + {at}" if axis else f"j + {at}, i" for at in (place, start))
        text = f"{{0}}[{into} : {shape[0]}, {shape[1]}] = =({draft.use(name)}[{of}]), j < {stop - start}{whole};"
        made = draft.define(text, draft.dtype, shape)
        place, whole = place + stop - start, f" default {made}"
        draft.use(made)
    draft.unused.append(made)


def reshape(draft: Draft) -> None:
    """The same elements in fewer or more dimensions."""
    a = draft.any()
    shape = draft.values[a].shape
    size = 0 if 0 in shape else product(shape)
    divisors = [n for n in range(1, size + 1) if not size % n] or [1]
    first = draft.random.choice(divisors)
    new = draft.random.choice(([size], [first, size // first], [size // first, 1, first], [1, *shape]))
    draft.define(f"{{0}} = reshape({a}, {', '.join(map(str, new))});", draft.dtype, new)


def factors(draft: Draft) -> None:
    """A sum of products of three or four tensors that share indexes."""
    random = draft.random
    sizes = {n: random.choice((1, 2, 3, 5)) for n in INDEXES[:4]}
    count = random.choice((3, 3, 4))
    names = [random.sample([*sizes], random.choice((1, 2, 2, 3))) for _ in range(count)]
    tensors = [draft.input(tuple(sizes[n] for n in each), draft.dtype) for each in names]
    known = sorted({n for each in names for n in each})
    output = random.sample(known, random.randrange(min(len(known), 3)))
    body = " * ".join(f"{t}[{', '.join(each)}]" for t, each in zip(tensors, names, strict=True))
    shape = tuple(sizes[n] for n in output)
    text = f"{', '.join(output)} : {', '.join(map(str, shape))}" if output else ""
    draft.define(f"{{0}}[{text}] = {random.choice('+++*>')}({body});", draft.dtype, shape)


INDICES = (DType.INT32, DType.INT64, DType.UINT8)


def gather(draft: Draft) -> None:
    """Lines by an index tensor, some of it out of range."""
    random = draft.random
    a = draft.any(random.choice((1, 2, 3)))
    data = draft.values[a].shape
    axis = random.randrange(len(data))
    indices = draft.input(draft.shape(random.choice((0, 1, 1, 2))), random.choice(INDICES))
    shape = (*data[:axis], *draft.values[indices].shape, *data[axis + 1 :])
    if product(shape) <= MOST:
        draft.define(f"{{0}} = gather({a}, {indices}, {axis});", draft.dtype, shape)


def elements(draft: Draft) -> None:
    """Each element by its own index, copied or summed along an axis."""
    random = draft.random
    a = draft.any(random.choice((1, 2, 3)))
    data = draft.values[a].shape
    axis = random.randrange(len(data))
    names = INDEXES[: len(data)]
    shape = (*data[:axis], random.choice((1, 2, 5)), *data[axis + 1 :])
    indices = draft.input(shape, random.choice(INDICES))
    subscripts = [*names]
    subscripts[axis] = f"{indices}[{', '.join(names)}]"
    kept = [k for k in range(len(shape)) if k != axis] if random.random() < 0.4 else [*range(len(shape))]
    sizes = tuple(shape[k] for k in kept)
    agg = "=" if len(kept) == len(shape) else random.choice("+><")
    text = f"{', '.join(names[k] for k in kept)} : {', '.join(map(str, sizes))}" if kept else ""
    draft.define(f"{{0}}[{text}] = {agg}({a}[{', '.join(subscripts)}]);", draft.dtype, sizes)


def scatter(draft: Draft) -> None:
    """Lines that fall where an index tensor says, some of them on the same place."""
    random = draft.random
    a = draft.any(random.choice((1, 2)))
    shape = draft.values[a].shape
    axis, size = random.randrange(len(shape)), random.choice((1, 3, 8))
    names = INDEXES[: len(shape)]
    own = random.random() < 0.3
    indices = draft.input(shape if own else shape[axis : axis + 1], random.choice(INDICES))
    subscripts = [*names]
    subscripts[axis] = f"{indices}[{', '.join(names) if own else names[axis]}]"
    sizes = (*shape[:axis], size, *shape[axis + 1 :])
    default = f" default {draft.beside(sizes)}" if random.random() < 0.4 else ""
    target = f"{', '.join(subscripts)} : {', '.join(map(str, sizes))}"
    text = f"{random.choice('++*><==')}({a}[{', '.join(names)}]){default};"
    draft.define(f"{{0}}[{target}] = {text}", draft.dtype, sizes)


def along(draft: Draft) -> None:
    """Places of extremes, running totals, and order along an axis."""
    random = draft.random
    a = draft.any(random.choice((1, 2, 3)))
    shape = draft.values[a].shape
    axis = random.randrange(len(shape))
    name = random.choice(("argmax", "argmin", "cumsum", "cummax", "cummin", "sort", "argsort", "top_k", "one_hot"))
    line = shape[axis]
    if not line or (name == "one_hot" and product(shape) * 3 > MOST):
        return
    if name == "one_hot":
        indices = draft.input(shape, random.choice(INDICES))
        draft.define(f"{{0}} = one_hot({indices}, 3);", DType.BOOL, (*shape, 3))
    elif name == "top_k":
        kept = random.randrange(1, line + 1)
        text = f"{{0}} = element(top_k({a}, {kept}, {axis}), 0);"
        draft.define(text, draft.dtype, (*shape[:axis], kept, *shape[axis + 1 :]))
    elif name in ("argmax", "argmin"):
        draft.define(f"{{0}} = {name}({a}, {axis});", DType.INT32, shape[:axis] + shape[axis + 1 :])
    else:
        text = f"{{0}} = {name}({a}, {axis}{random.choice(('', ', 1')) if 'sort' in name else ''});"
        draft.define(text, DType.INT32 if name == "argsort" else draft.dtype, shape)


def coordinates(draft: Draft) -> None:
    """A tensor's own coordinates, compared with another."""
    a = draft.any(draft.random.choice((1, 2, 3)))
    shape = draft.values[a].shape
    axis = draft.random.randrange(len(shape))
    draft.define(f"{{0}} = (index({a}, {axis}) < {draft.random.randrange(5)} ? {a} : 1);", draft.dtype, shape)


def random_numbers(draft: Draft) -> None:
    """A draw of the random generator."""
    state = draft.input((3, 2048), DType.UINT32)
    shape = draft.shape()
    name = draft.define(f"{{0}} = prng_step({state}, {', '.join(map(str, shape)) or 1});", DType.FLOAT32, shape or (1,))
    del draft.values[draft.use(name)]
    draft.define(f"{{0}} = prng_value({name});", DType.FLOAT32, shape or (1,))


KINDS: Mapping[Callable[[Draft], None], int] = {
    elementwise: 80, contraction: 80, matmul: 25, factors: 12, window: 30, rows: 25, scan: 15, transpose: 20, turned: 3, reshape: 12, joined: 14,
    gather: 8, elements: 6, scatter: 10, along: 15, coordinates: 6, conditional: 8, random_numbers: 1,
}  # fmt: skip
"""What may be drawn, and how often."""
