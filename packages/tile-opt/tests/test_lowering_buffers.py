"""Buffers and steps of lowered programs: what shares bytes, what needs no kernel, where temporaries lie."""

from __future__ import annotations

from lowering_support import TARGET, check, wrap
from tile_ir.dtype import DType
from tile_ir.kernels import BufferKind, StepKind
from tile_ir.stripe.parser import parse_program
from tile_opt.lowering import lower

CHAIN = wrap("inputs A\noutputs D", {"in A": "f32(32:1)", "out D": "f32(32:1)"}, "".join(f"""
block [] ( in {a}[0] f32(32:1) out {b}[0] f32(32:1) ) {{
  block [i:32] ( in {a}[i] f32(1:1) out {b}[i] f32(1:1) ) {{ $a = load({a}) $b = neg($a) {b} = store($b) }}
}}""" for a, b in (("A", "X"), ("X", "Y"), ("Y", "Z"), ("Z", "D"))),
    temps={"X": "f32(32:1)", "Y": "f32(32:1)", "Z": "f32(32:1)"})  # fmt: skip


def test_temporaries_share_bytes_and_equal_kernels_are_made_once() -> None:
    kernels = check(CHAIN)
    temps = [b for b in kernels.buffers if b.kind is BufferKind.TEMP]
    assert kernels.arenas == (256,)
    assert sorted(b.offset for b in temps) == [0, 0, 128]
    assert [s.deps for s in kernels.steps] == [(), (0,), (1,), (2,)]
    # The input is not known to be aligned, so its kernel differs from the two between temporaries.
    assert len(kernels.kernels) == 2


def test_zeroing_and_copying_need_no_kernel() -> None:
    kernels = check(
        wrap(
            "inputs A\noutputs B, C",
            {"in A": "f32(3:4, 4:1)", "out B": "f32(3:4, 4:1)", "out C": "f32(12:1)"},
            """
block [] ( in A[0,0] f32(3:4, 4:1) out B[0,0] f32(3:4, 4:1) ) {
  block [i:3, j:4] ( in A[i,j] f32(1:4, 1:1) out B[i,j] f32(1:4, 1:1) ) { $a = load(A) B = store($a) }
}
block [] ( out C[0] f32(12:1) ) {
  block [i:3, j:4] ( out C[4*i + j] f32(1:1) ) { $z = (f32)0.0 C = store($z) }
}""",
        )
    )
    assert [s.kind for s in kernels.steps] == [StepKind.COPY, StepKind.FILL]
    assert not kernels.kernels


def test_partial_or_negative_zero_fills_stay_kernels() -> None:
    for value, size in (("-0.0", 12), ("0.0", 11)):
        kernels = lower(parse_program(wrap("outputs C", {"out C": "f32(12:1)"}, f"""
block [] ( out C[0] f32(12:1) ) {{ block [i:{size}] ( out C[i] f32(1:1) ) {{ $z = (f32){value} C = store($z) }} }}
""")), TARGET)  # fmt: skip
        assert len(kernels.kernels) == 1


def test_device_temporaries_of_kernels_become_parameters() -> None:
    text = wrap(
        "inputs A\noutputs B",
        {"in A": "f16(4:6, 6:1)", "out B": "f16(4:1)"},
        """
block [GRID] ( in A[0,0] f16(4:6, 6:1) out B[0] f16(4:1) none sum[0] f32(4:1) ) {
  block [i:4] ( out sum[i] f32(1:1) ) { $z = (f32)0.0 sum = store($z) }
  block [i:4, k:6] ( in A[i,k] f16(1:6, 1:1) inout sum[i]:add f32(1:1) ) { $a = load(A) $w = cast($a):f32 sum = store($w) }
  block [i:4] ( in sum[i] f32(1:1) out B[i] f16(1:1) ) { $s = load(sum) $h = cast($s):f16 B = store($h) }
}""",
    )
    kernels = check(text.replace("GRID", ""))
    (temp,) = [b for b in kernels.buffers if b.kind is BufferKind.TEMP]
    assert (temp.dtype, temp.bytes) == (DType.FLOAT32, 16)
    assert kernels.steps[0].buffers[1] == temp.id


def test_each_group_has_its_own_device_temporary() -> None:
    kernels = check(
        wrap(
            "inputs A\noutputs B",
            {"in A": "f32(3:2, 2:1)", "out B": "f32(3:2, 2:1)"},
            """
block [g:3 #grid] ( in A[g,0] f32(1:2, 2:1) out B[g,0] f32(1:2, 2:1) none t[0] f32(2:1) ) {
  block [i:2] ( in A[0,i] f32(1:2, 1:1) out t[i] f32(1:1) ) { $a = load(A) t = store($a) }
  block [i:2] ( in t[1-i] f32(1:1) out B[0,i] f32(1:2, 1:1) ) { $a = load(t) B = store($a) }
}""",
        )
    )
    (temp,) = [b for b in kernels.buffers if b.kind is BufferKind.TEMP]
    assert temp.bytes == 3 * 64
