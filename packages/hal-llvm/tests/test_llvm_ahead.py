"""Libraries built ahead of time: code asks for each feature that it may use."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise

import pytest
from hal_llvm import binding
from hal_llvm.ahead import levels
from hal_llvm.cpu import present

HOST = binding.host()
KNOWN = sorted(levels.X86 if levels.is_x86(HOST.triple) else levels.ARM)


def answers(features: Collection[str]) -> tuple[int, int]:
    """What code says at its first call and at its second, if it was written for these features."""
    binding.accept_inline_assembly()
    processor = replace(HOST, features=",".join(f"+{f}" for f in features))
    text = levels.fits_ir("f", processor).replace("define internal i32", "define i32")
    module = binding.Module(text, binding.target_machine(levels.plain(processor)))
    code = binding.LoadedCode([module.object_code()], ["f.fits"])
    module.close()
    ask = ctypes.CFUNCTYPE(ctypes.c_int)(code.addresses["f.fits"])
    return ask(), ask()


def test_this_processor_has_what_llvm_says() -> None:
    assert answers(present(HOST.features).intersection(KNOWN)) == (1, 1)


@pytest.mark.parametrize("feature", KNOWN)
def test_each_feature_is_asked_for(feature: str) -> None:
    has = int(feature in present(HOST.features))
    assert answers([feature]) == (has, has)


def test_every_level_is_known_and_above_those_before() -> None:
    here = [n for n in levels.names(HOST.triple) if n != levels.HOST and n not in levels.OTHERS]
    found = [present(levels.processor(name).features) for name in here]
    assert not found[0] and all(a < b for a, b in pairwise(found))
    assert levels.processor(levels.HOST).features


def test_other_architectures_are_not_this_one() -> None:
    """And have none of its features, so that nothing is asked for."""
    assert {*levels.names("aarch64-unknown-linux-gnu")} & {*levels.OTHERS} == {"x86-64-linux"}
    assert {*levels.names("x86_64-unknown-linux-gnu")} & {*levels.OTHERS} == {"aarch64-linux"}
    assert not any(present(levels.processor(name).features) for name in levels.OTHERS)
