"""Identifiers of generated source: every name is ours, unique, and never a word of the language.

A user's tensor names only hint at a name, so that no name in a Tile program can inject or collide.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable

_WORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    _Alignas _Alignof _Atomic _Bool _Complex _Generic _Imaginary _Noreturn _Static_assert _Thread_local
    alignas alignof bool constexpr false nullptr static_assert thread_local true typeof typeof_unqual
    asm class delete explicit export friend mutable namespace new operator private protected public template this
    throw try typeid typename using virtual catch
    half uchar ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t event_t image2d_t image3d_t sampler_t
    kernel global local constant read_only write_only read_write uniform pipe
    __kernel __global __local __constant __private __read_only __write_only __read_write __attribute__
    main NULL INFINITY NAN FLT_MAX FLT_MIN DBL_MAX DBL_MIN HUGE_VAL M_PI M_E
"""
C_KEYWORDS: frozenset[str] = frozenset(_WORDS.split())
"""Words of C, C++, OpenCL C and their usual macros."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST = 48


def sanitize(hint: str) -> str:
    """`hint` as a plain ASCII identifier: starts with a letter, has no ``__`` and no trailing ``_``."""
    text = re.sub(r"_+", "_", _UNSAFE.sub("_", hint))[:_LONGEST].strip("_")
    return text if text and text[0].isalpha() else f"v{text}"


class NameAllocator:
    """Hands out identifiers, each once.

    `reserved` are words it never gives (keywords and the names of library functions); they are
    compared without regard to case, because some preprocessors define upper-case macros.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._used: set[str] = {word.lower() for word in (*C_KEYWORDS, *reserved)}
        self._next: dict[str, int] = {}
        self._given: dict[Hashable, str] = {}

    def fresh(self, hint: str = "v") -> str:
        """A new identifier that resembles `hint`."""
        stem = sanitize(hint)
        name = stem
        while name.lower() in self._used:
            number = self._next.get(stem, 1)
            self._next[stem] = number + 1
            name = f"{stem}_{number}"
        self._used.add(name.lower())
        return name

    def get(self, key: Hashable, hint: str = "v") -> str:
        """The identifier of `key`: the same one every time, made from `hint` at first."""
        if key not in self._given:
            self._given[key] = self.fresh(hint)
        return self._given[key]
