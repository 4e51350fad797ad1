"""Declarations of those functions of OpenCL C that a text calls.

PoCL puts its declarations of all of them, 18 000 lines, before each program: its compiler reads them for a fifth of a
second. It leaves them out where the macro that guards them is defined, and a program declares what it calls itself.
Types, constants and limits stand in a header of their own, which is short and stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

LEFT_OUT = "-D_OPENCL_H_"
"""The option that leaves PoCL's declarations out."""

_UNSIGNED = {
    "char": "uchar", "short": "ushort", "int": "uint", "long": "ulong", "float": "uint", "double": "ulong",
    "uchar": "uchar", "ushort": "ushort", "uint": "uint", "ulong": "ulong",
}  # fmt: skip
"""The unsigned type of the same width, of every type."""
_FLOATS, _WORDS = ("float", "double"), ("int", "uint")
_INTEGERS = tuple(t for t in _UNSIGNED if t not in _FLOATS)
_LANES = ("", "2", "4", "8", "16")
_ATOMIC = ("global", "local")
_SPACES = ("private", *_ATOMIC)
_PURE, _CONST, _CONVERGENT = "pure", "const", "convergent"


@dataclass(frozen=True, slots=True)
class _Form:
    """Overloads of F: T is each of the types, E one lane of it, S and U are the integers as wide, Q is each address space."""

    text: str
    types: tuple[str, ...] = _FLOATS
    lanes: tuple[str, ...] = _LANES
    spaces: tuple[str, ...] = ("",)
    effect: str = _CONST
    """What Clang may take for granted."""

    def declarations(self, name: str, types: Iterable[str]) -> Iterator[str]:
        """One for each overload that computes with some of `types`."""
        attributes = ", ".join(["overloadable", *([self.effect] if self.effect else [])])
        for T, lanes, space in product([t for t in types if t in self.types], self.lanes, self.spaces):
            unsigned = _UNSIGNED[T] + lanes
            words = {"T": T + lanes, "U": unsigned, "S": unsigned.removeprefix("u"), "E": T, "Q": space, "F": name}
            made = "".join(words.get(part, part) for part in re.split(r"\b", self.text))
            yield f"{made} __attribute__(({attributes}));"


_ONE = _Form("T F(T x)")
_TWO, _THREE = replace(_ONE, text="T F(T x, T y)"), replace(_ONE, text="T F(T x, T y, T z)")
_ANY = replace(_TWO, types=tuple(_UNSIGNED))
_SELECTED = [replace(_ANY, text=f"T F(T x, T y, {mask} z)") for mask in "SU"]
_PLACE = _Form("size_t F(T axis)", ("uint",), ("",))
_FENCE = _Form("void F(T flags)", ("uint",), ("",), effect="")
_CHANGE = _Form("T F(volatile Q T *p, T x)", _WORDS, ("",), _ATOMIC, "")
FORMS: dict[str, list[_Form]] = {
    name: forms
    for names, forms in (
        ("acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp expm1 fabs floor log log1p rint round", [_ONE]),
        ("sin sinh sqrt tan tanh trunc", [_ONE]),
        ("native_cos native_exp native_log native_sin native_sqrt native_tan", [replace(_ONE, types=("float",))]),
        ("atan2 fmax fmin fmod pow", [_TWO]),
        ("fma mad", [_THREE]),
        ("max min", [_ANY]),
        ("abs", [replace(_ONE, text="U F(T x)", types=_INTEGERS)]),
        ("select", _SELECTED),
        ("get_global_id get_group_id get_local_id get_local_size get_num_groups", [_PLACE]),
        ("barrier", [replace(_FENCE, effect=_CONVERGENT)]),
        ("mem_fence", [_FENCE]),
        ("atomic_add atomic_max atomic_min atomic_xchg", [_CHANGE]),
        ("atomic_inc", [replace(_CHANGE, text="T F(volatile Q T *p)")]),
        ("atomic_cmpxchg", [replace(_CHANGE, text="T F(volatile Q T *p, T old, T x)")]),
        ("atom_cmpxchg", [replace(_CHANGE, text="T F(volatile Q T *p, T old, T x)", types=("long", "ulong"))]),
    )
    for name in names.split()
}
"""The overloads of each function whose name is the same for all types."""
_MADE = re.compile(r"(?:(?:as|convert)_([a-z]+)(\d*)(?:_sat)?(?:_rt[enpz])?|(vload|vstore)(_half)?(\d*)(?:_rte)?)$")
"""Names of functions that say types or lanes."""


def declared(text: str) -> str:
    """What stands before `text`, whose lines are counted from 1 all the same. A text that calls others does not compile."""
    names = {*re.findall(r"\b[a-z]\w+", text)}
    types = [t for t in _UNSIGNED if t != "double" or "double" in text]
    calls = [line for name in sorted(names) for line in _declared(name, types)]
    wide = ["#pragma OPENCL EXTENSION cl_khr_fp64 : enable"] if "double" in types else []
    return "\n".join([*wide, *calls, "#line 1", ""])


def _declared(name: str, types: Iterable[str]) -> Iterable[str]:
    made = _MADE.match(name)
    if made is None:
        return (line for form in FORMS.get(name, []) for line in form.declarations(name, types))
    to, lanes, moved, half, count = made.groups()
    if name.startswith("as_"):
        return [f"#define {name}(x) __builtin_astype((x), {to}{lanes})"]
    if moved:
        return _moved(moved, "half" if half else "E", count).declarations(name, types)
    return _Form(f"{to}{lanes} F(T x)", tuple(_UNSIGNED), (lanes,)).declarations(name, types)


def _moved(kind: str, element: str, lanes: str) -> _Form:
    """The form of what loads or stores vectors of so many lanes; halves are computed with as floats."""
    if kind == "vstore":
        types = _FLOATS if element == "half" else tuple(_UNSIGNED)
        return _Form(f"void F(T x, size_t n, Q {element} *p)", types, (lanes,), _SPACES, "")
    types = _FLOATS[:1] if element == "half" else tuple(_UNSIGNED)
    return _Form(f"T F(size_t n, const Q {element} *p)", types, (lanes,), (*_SPACES, "constant"), _PURE)
