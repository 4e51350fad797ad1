"""Operands that run this way and that, in kernels as large as those that graphics processors have tiles of local memory for."""

from __future__ import annotations

from collections.abc import Sequence

from farm.draft import Draft, product

GROUPED_FROM = 4096
"""Elements from which plans of graphics processors go through local memory."""
MOST = 4 * GROUPED_FROM


def turned(draft: Draft) -> None:
    """Operands that run this way and that, some alike, some not along every dimension, met in one kernel of `GROUPED_FROM` elements or more."""
    random, sizes = draft.random, list[int]()
    for size in random.choices((1, 2, 3, 5, 8, 16, 31, 61, 64, 127), k=random.choice((1, 1, 2, 2, 3))):
        sizes.append(size if size * product(sizes) <= GROUPED_FROM else 2)
    sizes.insert(random.randrange(len(sizes) + 1), -(-random.randrange(GROUPED_FROM, MOST) // product(sizes)))
    orders = [random.sample(range(len(sizes)), len(sizes)) for _ in range(2)]
    first, *others = [_turned(draft, sizes, random.choice(orders)) for _ in range(random.choice((2, 2, 3)))]
    text = first + "".join(f" {random.choice('+-')} {o}{random.choice(('', '', ' * 2'))}" for o in others)
    whole = draft.define(f"{{0}} = {text};", draft.dtype, sizes)
    if random.random() < 0.4:
        _summed(draft, whole, random.randrange(len(sizes)))
    if random.random() < 0.2:
        draft.define(f"{{0}} = {others[0]} - {first};", draft.dtype, sizes)


def _turned(draft: Draft, sizes: Sequence[int], order: Sequence[int]) -> str:
    """A tensor of `sizes`: a new input whose dimensions are those of `order`, now and then without one of them."""
    names, missing = "wxyz"[: len(sizes)], draft.random.choice(order) if draft.random.random() < 0.15 else None
    own = [d for d in order if d != missing]
    operand = draft.input([sizes[d] for d in own])
    target = f"{', '.join(names)} : {', '.join(map(draft.spelled, sizes))}"
    limit = "" if missing is None else f", {names[missing]} < {sizes[missing]}"
    text = f"{{0}}[{target}] = =({operand}[{', '.join(names[d] for d in own)}]){limit};"
    return draft.use(draft.define(text, draft.dtype, sizes))


def _summed(draft: Draft, whole: str, axis: int) -> None:
    """The sums of `whole` along an axis; half of the time, what its elements are beside them."""
    shape = draft.values[whole].shape
    names = [*"wxyz"[: len(shape)]]
    kept, sizes = [*names], [*shape]
    kept[axis], sizes[axis] = "0", 1
    text = f"{', '.join(kept)} : {', '.join(map(draft.spelled, sizes))}"
    total = draft.define(f"{{0}}[{text}] = +({draft.use(whole)}[{', '.join(names)}]);", draft.dtype, sizes)
    if draft.random.random() < 0.5:
        draft.define(f"{{0}} = {whole} - {draft.use(total)};", draft.dtype, shape)
