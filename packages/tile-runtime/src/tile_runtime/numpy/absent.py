"""What `tile_runtime.numpy` has not, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from tile_runtime.numpy.standard import EXTENSIONS, REFUSED

_BY_DATA = "the shape of the result depends on data"
_WHERE = "nothing is written in place: where(test, value, x) makes a new tensor"
INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("argwhere", "flatnonzero", "unique", "compress", "extract", "delete"), _BY_DATA),
    **dict.fromkeys(("put", "put_along_axis", "place", "copyto", "putmask"), _WHERE),
    **dict.fromkeys(("mgrid", "ogrid"), "indices(shape) has the places of cells, meshgrid(…) coordinates"),
    **dict.fromkeys(("vectorize", "apply_along_axis", "frompyfunc"), "tile_runtime.vmap maps a function over an axis"),
    "random": "tile_runtime.random draws numbers from keys",
    "argpartition": "argsort(x) has all places in order, top_k(x, k) the first",
    "partition": "sort(x) has all elements in order, top_k(x, k) the first",
    "lexsort": "argsort is stable: sort by the last key first",
    "lax": "tile_runtime.scan and tile_runtime.repeat are loops",
}


def reason(name: str, known: list[str]) -> str:
    """Why there is no such name, or which ones are close to it."""
    why = REFUSED.get(name) or EXTENSIONS.get(name) or INSTEAD.get(name)
    close = get_close_matches(name, known, n=2, cutoff=0.75)
    why = why or (f"did you mean {' or '.join(close)}?" if close else "docs/array-api.md lists what there is")
    return f"tile_runtime.numpy has no {name}: {why}"
