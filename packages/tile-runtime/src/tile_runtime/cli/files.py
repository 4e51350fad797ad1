"""Arrays from files and to files, as options of commands name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from zipfile import BadZipFile

from tile_runtime.cli.common import print_json, print_table
from tile_runtime.cli.errors import USAGE, CommandError


def pairs(what: str, kind: str, names: Sequence[str], texts: Sequence[str]) -> dict[str, str]:
    """NAME=FILE options by name; CommandError for what is none, and for names that `what` does not have."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise CommandError(f"--{kind} {text!r} is not like {names[0] if names else 'NAME'}=file.npy", USAGE)
        if name not in names:
            raise CommandError(f"{what} has no {kind} {name!r}; its {kind}s are {', '.join(names)}")
        if name in found:
            raise CommandError(f"--{kind} {name!r} is given twice", USAGE)
        found[name] = value
    return found


def load_value(name: str, text: str) -> Any:
    """A number, or the array in a .npy file."""
    import numpy as np

    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    try:
        found: object = np.load(text, allow_pickle=False)
    except (ValueError, EOFError, BadZipFile) as problem:
        raise CommandError(f"input {name!r}: {text} is no .npy file: {problem}", USAGE) from None
    except MemoryError as problem:
        raise CommandError(f"input {name!r}: {text} needs more memory than there is: {problem}", USAGE) from None
    if not isinstance(found, np.ndarray):
        raise CommandError(
            f"input {name!r}: {text} holds several arrays; save the one that is meant with numpy.save", USAGE
        )
    return cast(object, found)


def report_arrays(results: Mapping[str, Any], files: Mapping[str, str], json: bool) -> None:
    """Saves results where `files` says, and prints what they are."""
    import numpy as np

    for name, path in files.items():
        with open(path, "wb") as target:
            np.save(target, results[name], allow_pickle=False)
    rows = [{"name": n, **_summary(r), "file": files.get(n)} for n, r in results.items()]
    if json:
        print_json(rows)
    else:
        print_table(("Output", "dtype", "Shape", "Min", "Mean", "Max", "File"), [_cells(r) for r in rows])


def _summary(array: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if not array.size:
        return {**facts, "min": None, "mean": None, "max": None}
    wide = array.astype("float64")
    return {**facts, "min": float(wide.min()), "mean": float(wide.mean()), "max": float(wide.max())}


def _cells(row: dict[str, Any]) -> list[object]:
    numbers = ["" if row[k] is None else f"{row[k]:.6g}" for k in ("min", "mean", "max")]
    return [row["name"], row["dtype"], row["shape"], *numbers, row["file"] or ""]
