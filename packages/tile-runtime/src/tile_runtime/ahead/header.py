"""The C header of a function built ahead of time."""

from __future__ import annotations

import re
from textwrap import dedent

from tile_hal.ahead import ABI, Entry, Parameter, Status
from tile_ir.names import claim

_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register"
    " restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool class"
    " new delete this template operator private public protected try catch throw namespace using main"
)
KEYWORDS = frozenset(_WORDS.split())
"""What no parameter may be called, in C and in C++."""


def identifier(text: str, taken: set[str]) -> str:
    """A C identifier like `text`, which is taken from then on."""
    plain = re.sub(r"\W", "_", text, flags=re.ASCII)
    if not plain or plain[0].isdigit() or plain in KEYWORDS:
        plain = f"_{plain}" if plain[:1].isdigit() else f"{plain}_"
    return claim(plain, taken)


def is_identifier(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII) is not None and text not in KEYWORDS


def header(entry: Entry, made_by: str) -> str:
    """The whole header: what the parameters are, what is returned, and the functions."""
    guard = f"TILE_{entry.name.upper()}_H"
    statuses = ", ".join(f"TILE_{s.name} = {s.value}" for s in Status)
    threads = "the caller's thread alone" if entry.threads == 1 else f"up to {entry.threads} threads"
    lines = "\n".join(f" *   {_described(p)}" for p in entry.parameters)
    return dedent("""\
        /* {made_by}
         *
        {lines}
         *
         * Arrays are in C order. An output has no memory in common with another array. Returns TILE_OK, or the
         * reason why nothing was done. Any number of threads may call it at once; a call works on {threads}.
         */
        #ifndef {guard}
        #define {guard}
        #include <stdint.h>

        #ifndef TILE_STATUS
        #define TILE_STATUS
        enum {{ {statuses} }};
        #endif
        #define {upper}_ABI {abi} /* {name}_abi() returns this where the library fits this header */

        #ifdef __cplusplus
        extern "C" {{
        #endif
        {prototype}
        int32_t {name}_abi(void);
        void {name}_release(void); /* gives back the memory that is kept for the next call */
        #ifdef __cplusplus
        }}
        #endif
        #endif
        """).format(
        made_by=made_by.replace("*/", "* /"), lines=lines, threads=threads, guard=guard, statuses=statuses, upper=entry.name.upper(),
        abi=ABI, name=entry.name, prototype=entry.prototype,
    )  # fmt: skip


def _described(parameter: Parameter) -> str:
    kind = f"{parameter.name}: {parameter.dtype}"
    if parameter.by_value:
        return f"{kind}, by value"
    shape = ", ".join(map(str, parameter.shape))
    return f"{kind}[{shape}], {'written, ' if parameter.output else ''}{parameter.align}-byte aligned"
