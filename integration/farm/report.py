"""What a harvest says: a Markdown page, and a regression test for each failure."""

from __future__ import annotations

import platform
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from farm.failures import Failure
from farm.workers import Harvest

Rows = Mapping[str, Counter[str]]


def markdown(harvest: Harvest, reduced: Sequence[Failure], title: str) -> str:
    """The page."""
    same, seconds = harvest.total("same"), max(harvest.seconds, 1e-9)
    lines = [
        f"# {title}",
        "",
        f"{harvest.programs} programs, {same} cases equal to the reference, {harvest.total('failed')} failed, "
        f"{harvest.total('refused: ')} refused, {harvest.total('refused before')} programs that do not bind, "
        f"{harvest.total('open')} left open by the language; {harvest.seconds:.0f} s, {same / seconds:.0f} cases a second. "
        f"{platform.machine()}, Python {platform.python_version()}.",
        "",
        *_table("Configuration", _by(harvest, 1)),
        *_table("Program", _by(harvest, 2)),
        *_table("Derivatives taken", _by(harvest, 3)),
        *_failures(harvest.failures, reduced),
    ]
    return "\n".join(lines) + "\n"


def _by(harvest: Harvest, field: int) -> Rows:
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for key, count in harvest.counts.items():
        parts = key.split(": ")
        if len(parts) > field:
            rows[parts[field]][parts[0]] += count
    return rows


def _table(what: str, rows: Rows) -> Iterable[str]:
    yield from (f"| {what} | same | refused | open | failed |", "|---|---|---|---|---|")
    for name, counts in sorted(rows.items(), key=lambda row: -row[1].total()):
        yield f"| {name} | {counts['same']} | {counts['refused']} | {counts['open']} | {counts['failed']} |"
    yield ""


def _failures(failures: Sequence[Failure], reduced: Sequence[Failure]) -> Iterable[str]:
    yield from (f"## Failures: {len(failures)}", "")
    for signature, count in Counter(f.signature for f in failures).most_common():
        first = next(f for f in failures if f.signature == signature)
        yield f"- {count} × {signature}: `{first.command}`"
    for failure in reduced:
        yield from (
            "",
            f"### {failure.signature}",
            "",
            f"`{failure.command}`",
            "",
            "```",
            failure.sample.source.rstrip(),
        )
        yield f"// {', '.join(f'{n}: {t}' for n, t in failure.sample.types.items())}"
        if failure.sample.order:
            yield f"// gradient of order {failure.sample.order} with respect to {', '.join(failure.sample.wrt)}"
        yield from (str(failure.way), failure.symptom.text.rstrip()[-1500:], "```")
