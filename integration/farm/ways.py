"""Ways to compile and run a program: backend, machine, passes in order, plans, threads, cache, composition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from farm.machines import CPU, FAMILIES, GPU, GROUPED, OWN, ROWS
from farm.sample import Sample
from farm.turned import GROUPED_FROM

BACKENDS = ("stripe", "interp", "llvm", "differences")
"""What is tried unless somebody says otherwise: interpreters, the processor, finite differences."""
THREADS = (1, 2, 3, 4, 7)
EASY = 700
"""Work up to which the interpreters, which run Python for every element, are asked."""


@dataclass(frozen=True, slots=True)
class Way:
    """One configuration."""

    backend: str
    """The name of a device; "stripe" for the interpreter of scheduled Stripe; "differences" for finite differences."""
    machine: str = OWN
    passes: tuple[str, ...] | None = None
    """None: the machine's own."""
    plans: str = ""
    """Plans of kernels as text; "drawn NUMBER" for plans that the number gives; "" for the compiler's."""
    form: str = "compiled"
    """"compiled" by the optimizer and submitted; "called" as a user calls it; "composed" with some inputs bound."""
    cache: str = "off"
    """The disk cache: "off", "cold" (written) or "warm" (read by a second evaluator)."""
    threads: int = 1
    again: bool = field(default=False, compare=False)
    """The same has run with another number of threads."""

    @property
    def kind(self) -> str:
        """What failures are counted by."""
        order = "own passes" if self.passes is None else "no passes" if not self.passes else "shuffled passes"
        words = (self.backend, self.machine, order, "plan" if self.plans else "", self.form, self.cache)
        return ", ".join(w for w in words if w not in ("", "compiled", "off"))


def ways(sample: Sample, random: Random, threads: int, backends: Sequence[str]) -> Iterator[Way]:
    """The configurations that a program is tried under: about eight."""
    easy = sample.work <= EASY
    interpreters = ("stripe", "interp") if easy else ()
    devices = [b for b in backends if b not in ("stripe", "interp", "opencl", "differences")]
    fast = (*interpreters, *devices)
    if "differences" in backends and sample.order:
        yield Way("differences")
    for device in devices:
        yield Way(device, form="called", cache="cold", threads=threads)
        yield Way(device, form="called", cache="warm", threads=threads)
        if random.random() < 0.1:
            yield Way(device, form="called", threads=threads)
        if random.random() < 0.1:
            yield Way(device, form="composed", threads=threads)
    if "opencl" in backends and random.random() < 0.05:
        yield Way("opencl", form="called", threads=threads)
    if "opencl" in backends and sample.work >= GROUPED_FROM:
        yield from (Way("opencl", family, threads=threads) for family in FAMILIES)
    yield from _scheduled(sample, random, threads, fast)


def _scheduled(sample: Sample, random: Random, threads: int, fast: Sequence[str]) -> Iterator[Way]:
    small = random.choice(("small", "small", "wide", "masked", "few", "plain"))
    groups = random.choice(GROUPED)
    lists: list[tuple[str, tuple[str, ...] | None, str]] = [(small, None, "")]
    if random.random() < 0.7:
        lists.append((random.choice(("small", "masked")), _shuffled(random, CPU), ""))
    if random.random() < 0.15:
        lists.append(("small", (), ""))
    if random.random() < 0.6:
        lists.append((small, None, f"drawn {random.randrange(1 << 20)}"))
    if sample.work <= EASY and random.random() < 0.5:
        lists.append((groups, None, f"drawn {random.randrange(1 << 20)}" if random.random() < 0.3 else ""))
    if sample.work <= EASY and random.random() < 0.15:
        lists.append((groups, _shuffled(random, ROWS if groups == "rows" else GPU), ""))
    for machine, passes, plans in lists:
        for backend in fast:
            # Few processors run groups of several work items.
            rare = 0.0 if machine in GROUPED and backend == "llvm" else 0.3 if backend == "interp" else 1.0
            if random.random() < (1.0 if machine in GROUPED and backend == "interp" else rare):
                several = random.sample(THREADS, 3) if backend == "llvm" else (1,)
                yield from (Way(backend, machine, passes, plans, threads=t, again=t != several[0]) for t in several)


def _shuffled(random: Random, passes: Sequence[str]) -> tuple[str, ...]:
    return tuple(random.sample(passes, random.randrange(1, len(passes) + 1)))
