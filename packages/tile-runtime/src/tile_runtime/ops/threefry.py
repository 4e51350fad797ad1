"""Threefry-2x32 with twenty rounds: a function of a key and a count, whose results look random.

J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

from functools import cache

from tile_runtime.ops.text import function

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


@cache
def threefry() -> str:
    """The function (K, L, X, Y) -> (F, G) of 32-bit words: two for each count (X, Y) under the key (K, L)."""
    keys = ("K", "L", "M")
    lines = [f"M = K ^ L ^ {_PARITY};", "A0 = X + K;", "B0 = Y + L;"]
    for k in range(5):
        for j, turn in enumerate(_ROTATIONS[k % 2]):
            n = 4 * k + j
            left, right = (f"A{n}", f"B{n}") if j or not k else (f"T{k}", f"V{k}")
            lines.append(f"S{n} = {left} + {right};")
            turned = f"(({right} << {turn}) | ({right} >> {32 - turn}))"
            lines += [f"A{n + 1} = S{n};", f"B{n + 1} = {turned} ^ S{n};"]
        lines.append(f"T{k + 1} = A{4 * k + 4} + {keys[(k + 1) % 3]};")
        lines.append(f"V{k + 1} = B{4 * k + 4} + {keys[(k + 2) % 3]} + {k + 1};")
    return function(("K", "L", "X", "Y"), ("F", "G"), *lines, "F = T5;", "G = V5;")
