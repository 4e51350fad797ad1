"""Dot products of words (`tile_ir.dots`): which operation, in how many lanes, with which features, by which intrinsic of LLVM."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tile_ir.frozen import frozen


@frozen
class Form:
    """An intrinsic for so many words at once."""

    op: str
    lanes: int
    intrinsic: str
    features: frozenset[str]
    operand: str = ""
    """LLVM's type of the factors, where it is not that of words."""
    adds: bool = True
    """It adds to a third operand; otherwise it gives the products' sum alone."""


def _vnni(op: str, instruction: str) -> tuple[Form, ...]:
    names = {n: f"llvm.x86.avx512.{instruction}.{32 * n}" for n in (4, 8, 16)}
    wide = Form(op, 16, names[16], frozenset({"avx512vnni"}))
    both = (frozenset({"avx512vnni", "avx512vl"}), frozenset({"avxvnni"}))
    return (wide, *(Form(op, n, names[n], features) for features in both for n in (8, 4)))


def _same_signs(op: str, instruction: str) -> tuple[Form, ...]:
    feature = frozenset({"avxvnniint8"})
    return tuple(Form(op, n, f"llvm.x86.avx2.{instruction}.{32 * n}", feature) for n in (8, 4))


def _neon(op: str, instruction: str, feature: str) -> tuple[Form, ...]:
    def form(lanes: int) -> Form:
        bytes_ = 4 * lanes
        name = f"llvm.aarch64.neon.{instruction}.v{lanes}i32.v{bytes_}i8"
        return Form(op, lanes, name, frozenset({feature}), f"<{bytes_} x i8>")

    return form(4), form(2)


def _bfloat16() -> tuple[Form, ...]:
    def form(lanes: int, *features: str) -> Form:
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        return Form("dot2_bf16bf16", lanes, name, frozenset({"avx512bf16", *features}), f"<{2 * lanes} x bfloat>")

    return form(16), form(8, "avx512vl"), form(4, "avx512vl")


FORMS: tuple[Form, ...] = (
    *_vnni("dot4_u8s8", "vpdpbusd"),
    *_vnni("dot2_s16s16", "vpdpwssd"),
    *_same_signs("dot4_s8s8", "vpdpbssd"),
    *_same_signs("dot4_u8u8", "vpdpbuud"),
    *_bfloat16(),
    Form("dot2_s16s16", 16, "llvm.x86.avx512.pmaddw.d.512", frozenset({"avx512bw"}), "<32 x i16>", adds=False),
    Form("dot2_s16s16", 8, "llvm.x86.avx2.pmadd.wd", frozenset({"avx2"}), "<16 x i16>", adds=False),
    Form("dot2_s16s16", 4, "llvm.x86.sse2.pmadd.wd", frozenset({"sse2"}), "<8 x i16>", adds=False),
    *_neon("dot4_s8s8", "sdot", "dotprod"),
    *_neon("dot4_u8u8", "udot", "dotprod"),
    *_neon("dot4_u8s8", "usdot", "i8mm"),
)
"""Preferred ones first."""


def forms(features: Collection[str]) -> Mapping[str, tuple[Form, ...]]:
    """By operation, what a processor with these features has, narrow ones first."""
    present = frozenset(features)
    found: dict[str, dict[int, Form]] = {}
    for form in FORMS:
        if form.features <= present:
            found.setdefault(form.op, {}).setdefault(form.lanes, form)
    return {op: tuple(by_lanes[n] for n in sorted(by_lanes)) for op, by_lanes in found.items()}
