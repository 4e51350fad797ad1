"""Writes docs/jax-operations.md: which operations of StableHLO and CHLO run, and in how many random cases they passed.

python packages/tile-jax/tools/operations.py --cases 64     # runs them: a quarter of an hour
python packages/tile-jax/tools/operations.py --check        # compares the names alone
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "jax-operations.md"
sys.path.insert(0, str(ROOT / "packages" / "tile-jax" / "tests"))

LONGER = {"exact_functions": 8, "smooth_functions": 12, "two_floats": 4}
"""Families that draw from long lists of functions, and how many times as many cases they get."""

HEAD = """# Operations of JAX, one by one

What JAX hands to a device are the operations of StableHLO and, for special functions, of CHLO. This page lists all that the
supported jaxlib has: how `tile-jax` runs each, and in how many random cases it gave what JAX's own CPU gives, on which dtypes of
operands (`packages/tile-jax/tests/test_operations.py`; `--run-slow` runs thousands). It is written by
`python packages/tile-jax/tools/operations.py`.

- *Tile*: a converter makes Tile text of it.
- *in steps*: MLIR's own passes write it in terms of others.
- *host*: the host computes it between device programs.
- *no*: it is refused by name, with the place in the program; the right column says why.

Integers divided by 0 give −1, and the remainder is the dividend, as XLA has it. Operations of complex numbers
compute with their parts: all that move, add or multiply them, functions and comparisons; not sorts, and not reductions by
other regions than sums. Integers below 8 bits and 8-bit floats have no dtype in Tile and are refused.

"""
HOST = {"stablehlo.fft"}
ROW = "| `{}` | {} | {} | {} |"


def names(dialect: str) -> list[str]:
    """The operations of a dialect, as jaxlib's bindings list them."""
    from importlib import import_module

    module = import_module(f"jaxlib.mlir.dialects._{dialect}_ops_gen")
    found = {v.OPERATION_NAME for v in vars(module).values() if isinstance(v, type) and hasattr(v, "OPERATION_NAME")}
    return sorted(found - {"stablehlo.return"})


def ways() -> dict[str, tuple[str, str]]:
    """How each operation runs, and why not where it does not."""
    from tile_jax.lowering.complexes import FORMULAS
    from tile_jax.lowering.decomposed import LEFT
    from tile_jax.lowering.ops.calls import REFUSED
    from tile_jax.lowering.registry import converted

    known = {*converted(), *FORMULAS}
    found: dict[str, tuple[str, str]] = {}
    for name in (*names("stablehlo"), *names("chlo")):
        if name in REFUSED or name in LEFT:
            found[name] = ("no", REFUSED.get(name, LEFT.get(name, ("",)))[0])
        else:
            found[name] = ("host" if name in HOST else "Tile" if name in known else "in steps", "")
    return found


def counted(cases: int) -> tuple[Counter[str], dict[str, set[str]], list[str]]:
    """Passing cases of each operation, the dtypes of their operands, and the cases that failed."""
    from running import check, operands
    from test_operations import FAMILIES, drawn

    passed: Counter[str] = Counter()
    dtypes: dict[str, set[str]] = defaultdict(set)
    failed: list[str] = []
    for family in FAMILIES:
        for number in range(cases * LONGER.get(family, 1)):
            try:
                found = operands(check(drawn(family, number)))
            except Exception as problem:
                failed.append(f"{family} {number}: {type(problem).__name__}")
                continue
            for name, own in found.items():
                passed[name] += 1
                dtypes[name] |= own
        print(family, len(failed), flush=True)
    return passed, dtypes, failed


def written(passed: Counter[str], dtypes: dict[str, set[str]], failed: list[str]) -> None:
    """Adds the cases in MLIR's text: operations that JAX itself does not write."""
    import numpy as np
    from test_written import CASES, run, typed

    for name, (operation, arguments, wanted) in CASES.items():
        expected = [np.asarray(w) for w in wanted()]
        made = run(operation, arguments, [typed(w) for w in expected])
        if not all(np.allclose(m, w, rtol=1e-4, atol=1e-5) for m, w in zip(made, expected, strict=True)):
            failed.append(name)
            continue
        called = operation.split('"')[1]
        passed[called] += 1
        dtypes[called] |= {
            typed(a).rstrip(">").split("x")[-1].removeprefix("tensor<") for a in (*arguments, *expected)[:1]
        }


def page(passed: Counter[str], dtypes: dict[str, set[str]]) -> str:
    """The page as text."""
    rows = ["| operation | runs | cases | dtypes of operands |", "|---|---|---|---|"]
    for name, (way, why) in ways().items():
        rows.append(ROW.format(name, way, passed[name] or "", why or " ".join(sorted(dtypes[name]))))
    return HEAD + "\n".join(rows) + "\n"


def listed() -> dict[str, str]:
    """How the page says that each operation runs."""
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return {row[0].strip("| `"): row[1] for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=64, help="cases of each family")
    parser.add_argument(
        "--check", action="store_true", help="only compare the page's operations with those that there are"
    )
    options: Any = parser.parse_args()
    if options.check:
        return int(listed() != {name: way for name, (way, _) in ways().items()})
    import tile_jax

    tile_jax.register()
    passed, dtypes, failed = counted(options.cases)
    written(passed, dtypes, failed)
    PAGE.write_text(page(passed, dtypes))
    print("\n".join(failed))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
