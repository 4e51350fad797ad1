"""Which outputs may take over the memory of inputs that nobody needs any more, as the steps' reads and writes show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tile_ir.kernels import BufferInfo, BufferKind, Step

from tile_opt.lowering.arena import Touch


def inherits(
    infos: Sequence[BufferInfo], steps: Sequence[Step], touches: Sequence[Touch]
) -> tuple[tuple[int, int], ...]:
    """(output, input), of one type: nothing but copies of the same cells writes the output before the input was read last."""
    return tuple(pair for pair in _copied(infos, steps) if _dies_in_time(pair, steps, touches))


def _copied(infos: Sequence[BufferInfo], steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    """What is copied from inputs to outputs like them, each once."""
    known = {info.id: info for info in infos}
    pairs = dict.fromkeys(pair for step in steps for pair in step.copies if known.keys() >= set(pair))
    for output, given in pairs:
        to, source = known[output], known[given]
        kinds = (to.kind, source.kind) == (BufferKind.OUTPUT, BufferKind.INPUT)
        if kinds and (to.shape, to.dtype) == (source.shape, source.dtype):
            yield output, given


def _dies_in_time(pair: tuple[int, int], steps: Sequence[Step], touches: Sequence[Touch]) -> bool:
    output, given = pair
    last = max(n for n, touch in enumerate(touches) if given in touch.reads | touch.writes)
    early = (n for n, touch in enumerate(touches[: last + 1]) if output in touch.reads | touch.writes)
    return all(pair in steps[n].copies for n in early)
