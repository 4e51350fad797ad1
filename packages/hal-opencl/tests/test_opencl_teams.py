"""Products of teams of sub-groups: their PTX, the target that they are brought to, and the probe's text."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hal_opencl import binding, teams
from hal_opencl.compiler import OPTIONS
from hal_opencl.emit import teams as ptx
from hal_opencl.emit.dialect import Dialect
from hal_opencl.emit.matrix import CONTRACTED
from hal_opencl.emit.source import emit_kernel
from tile_ir.kernels import Kernel
from tile_ir.matrix import MATRIX_INSTRUCTIONS
from tile_ir.semtree import parse_function
from tile_ir.semtree.errors import SemtreeError
from tile_ir.stripe import nodes as stripe

PRODUCT = """function product(readwrite global float32* out) group(128, 1, 1) subgroup(32) {
    alloc local bfloat16[4096] a [align=1024];
    alloc local bfloat16[2048] b [align=1024];
    let item = local_id(0);
    var c = 0.0f32x4;
    var d = 0.0f32x4;
    var e = 0.0f32x4;
    var f = 0.0f32x4;
    barrier("group", "local");
    team_mma "wgmma_m64n32k16_bf16" = a[0] * b[0, panels=2048], (c, d, e, f);
    team_mma "wgmma_m64n32k16_bf16" = a[16] * b[1024, panels=2048], (c, d, e, f);
    async_wait(1, 0);
    out[item * 4] = c;
}"""


def text(dialect: Dialect, source: str = PRODUCT) -> str:
    return emit_kernel(Kernel("product", stripe.Block("b"), parse_function(source), (1, 1, 1)), dialect).text


def head_and_calls(made: str) -> tuple[str, list[str]]:
    """The helpers in front of a kernel, and its lines that call them."""
    head, body = made.split("kernel __attribute__")
    return head, [line.strip() for line in body.splitlines() if "tile_" in line or "asm" in line]


def test_the_text_of_a_product() -> None:
    head, calls = head_and_calls(text(Dialect(ptx=True, teams=True)))
    assert calls == [
        "tile_ready_4(&c, &d, &e, &f);",
        "tile_wgmma_m64n32k16_bf16_rp(&c, &d, &e, &f, tile_panels(a, (uint)(0) * 2u, 16), tile_panels(b, (uint)(0) * 2u, 4096));",
        "tile_wgmma_m64n32k16_bf16_rp(&c, &d, &e, &f, tile_panels(a, (uint)(16) * 2u, 16), tile_panels(b, (uint)(1024) * 2u, 4096));",
        "tile_products_4_0(&c, &d, &e, &f);",
    ]
    assert (
        'asm volatile("//@ {.reg .pred p; setp.ne.u32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 '
        '{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 0, 1;}"'
    ) in head
    assert '"//@ wgmma.commit_group.sync.aligned;"' in head and '"//@ wgmma.wait_group.sync.aligned 0;"' in head


STORED = "a[item] = 1.0bf16;"
COPIED = "async_copy b[item * 8] = x[item * 8], count=8, align=16;"
STEPS = """function product(readwrite global float32* out, read global bfloat16* x) group(128, 1, 1) subgroup(32) {
    alloc local bfloat16[4096] a [align=1024];
    alloc local bfloat16[2048] b [align=1024];
    let item = local_id(0);
    var c = 0.0f32x4;
    var d = 0.0f32x4;
    var e = 0.0f32x4;
    var f = 0.0f32x4;
    BEFORE
    for (step = 0; step < 9; step += 1) {
        async_wait(0, 0);
        barrier("group", "local");
        team_mma "wgmma_m64n32k16_bf16" = a[0] * b[0, panels=2048], (c, d, e, f);
        LATER
        async_wait(1, 0);
    }
    out[item * 4] = c;
}"""


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_nothing_is_converted_to_float16_in_front_of_the_wait_for_it(kind: str) -> None:
    """The assembler packs two conversions, and forgets what they wait for; of bfloat16 it is given pairs."""
    steps = STEPS.replace("BEFORE", "").replace("LATER", "")
    if kind == "f16":
        steps = steps.replace("bfloat16", "float16").replace("bf16", "f16")
    made = text(Dialect(ptx=True, teams=True), steps)
    assert (f"wait_group.sync.aligned 0;{ptx.STAY}" in made) is (kind == "f16")


FENCE, MEET, COPY, LOOP, STORE = "fence.proxy", "barrier(", "copy_async", "for (", "a["


@pytest.mark.parametrize(
    ("before", "later", "expected"),
    [
        (COPIED, COPIED, [COPY, LOOP, MEET, COPY]),
        (STORED, COPIED, [STORE, FENCE, LOOP, MEET, COPY]),
        ("", STORED, [LOOP, MEET, STORE, FENCE]),
        ("", STORED + COPIED, [LOOP, MEET, STORE, FENCE, COPY]),
        ("", COPIED + STORED, [LOOP, MEET, COPY, STORE, FENCE]),
        ("", "if (item < 7) { " + STORED + " } " + COPIED, [LOOP, MEET, STORE, FENCE, COPY]),
        ("", "for (n = 0; n < 4; n += 1) { " + STORED + " } " + COPIED, [LOOP, MEET, LOOP, STORE, FENCE, COPY]),
    ],
    ids=["copies", "stored before", "for the next round", "in front of copies", "behind copies", "branch", "loop"],
)
def test_products_see_what_is_stored_behind_a_fence(before: str, later: str, expected: list[str]) -> None:
    """One that waits for no copy which begins later, and none where copies alone bring the factors."""
    made = text(Dialect(ptx=True, teams=True), STEPS.replace("BEFORE", before).replace("LATER", later))
    body = made.partition("kernel __attribute__")[2].partition("float4 c =")[2]
    marks = (next((m for m in (FENCE, MEET, COPY, LOOP, STORE) if m in line), None) for line in body.splitlines())
    assert [m for m in marks if m] == expected


def test_wider_factors_say_nothing_of_their_rows() -> None:
    """They run along the depth; PTX has no flags for anything else."""
    made = ptx.multiply("product", MATRIX_INSTRUCTIONS["wgmma_m64n32k8_tf32"], a_panels=False, b_panels=False)
    assert "wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32 {%0, " in made and ", %16, %17, p, 1, 1;}" in made


ROUNDED = """function product(readwrite global float32* out) group(32, 8, 1) subgroup(32) {
    alloc local float32[4096] a [align=1024];
    alloc local float32[1024] b [align=1024];
    var c = 0.0f32x4;
    var d = 0.0f32x4;
    var e = 0.0f32x4;
    var f = 0.0f32x4;
    a[local_id(0)] = 1.0;
    barrier("group", "local");
    team_mma "wgmma_m64n32k8_tf32" = a[local_id(1) + 8, panels=1024, rounded=1] * b[0], (c, d, e, f);
    team_mma "wgmma_m64n32k8_tf32" = a[local_id(1) + 256, panels=1024, rounded=1] * b[8], (c, d, e, f);
    async_wait(1, 0);
    out[local_id(0) * 4] = c;
}"""


def test_items_read_and_round_a_first_factor() -> None:
    """What is read for the second product is on its way before the first one starts; no fence for what is only read so."""
    head, calls = head_and_calls(text(Dialect(ptx=True, teams=True), ROUNDED))
    assert calls == [
        "tile_ready_4(&c, &d, &e, &f);",
        "const uint4 a_1 = tile_read_wgmma_m64n32k8_tf32_p(a, (uint)((int)get_local_id(1) + 8), 0, 1024);",
        "const uint4 a_2 = tile_read_wgmma_m64n32k8_tf32_p(a, (uint)((int)get_local_id(1)), 256, 1024);",
        "tile_wgmma_m64n32k8_tf32_rounded(&c, &d, &e, &f, a_1, tile_panels(b, (uint)(0) * 4u, 16));",
        "tile_wgmma_m64n32k8_tf32_rounded(&c, &d, &e, &f, a_2, tile_panels(b, (uint)(8) * 4u, 16));",
        "tile_products_4_0(&c, &d, &e, &f);",
    ]
    place = "4 * ((row + 8) / 32 * apart + (k + 4) * 32 + ((row + 8) % 32 ^ (k + 4) % 4 * 8)) + 4 * first + 4 * behind"
    assert f'asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x3) : "r"((uint)(size_t)a + {place}) : "memory");' in head
    assert "fabs(x3) < INFINITY ? as_uint(x3) + 0x1000u : as_uint(x3));" in head
    assert ", {%16, %17, %18, %19}, %20, p, 1, 1;}" in head and '"r"(a.s3), "l"(b)' in head


def test_copies_start_behind_what_is_read_for_the_next_product() -> None:
    """But for those under a condition, which stay where they are."""
    copy = "async_copy b[512] = x[local_id(0)], count=4, align=16;"
    given = ROUNDED.replace("out)", "out, read global float32* x)")
    second = '    team_mma "wgmma_m64n32k8_tf32" = a[local_id(1) + 256'
    _, calls = head_and_calls(text(Dialect(ptx=True, teams=True), given.replace(second, f"    {copy}\n{second}")))
    names = [re.sub(r".*?tile_(\w+?)(_[a-z0-9]+)*\(.*", r"\1", line) for line in calls]
    assert [n for n in names if n in ("read", "copy", "wgmma")] == ["read", "read", "wgmma", "copy", "wgmma"]
    around = f"    if (local_id(0) < 3) {{ {copy} }}\n{second}"
    _, calls = head_and_calls(text(Dialect(ptx=True, teams=True), given.replace(second, around)))
    names = [re.sub(r".*?tile_(\w+?)(_[a-z0-9]+)*\(.*", r"\1", line) for line in calls]
    assert [n for n in names if n in ("read", "copy", "wgmma")] == ["read", "wgmma", "copy", "read", "wgmma"]


@pytest.mark.parametrize("panels", [False, True], ids=["rows", "panels"])
def test_lanes_that_read_a_first_factor_together_are_in_different_banks(panels: bool) -> None:
    made = ptx.read("read", MATRIX_INSTRUCTIONS["wgmma_m64n32k8_tf32"], panels)
    places = re.findall(r"\(size_t\)a \+ (.*)\) : \"memory\"", made)
    assert len(places) == ptx.ROUNDED.registers
    for place in places:
        code = compile(place.replace("/", "//"), "place", "eval")
        lanes = ({"row": lane // 4, "k": lane % 4, "first": 0, "behind": 0, "apart": 1024} for lane in range(32))
        assert len({eval(code, lane) // 4 % 32 for lane in lanes}) == 32


def test_devices_without_them_refuse() -> None:
    with pytest.raises(SemtreeError, match="needs a device with it"):
        text(Dialect(ptx=True))


def test_programs_are_brought_to_their_target() -> None:
    made = ".version 9.0\n.target sm_90, texmode_independent\n//@ wgmma.fence.sync.aligned;\n// begin inline asm\n"
    assert ptx.retargeted(made) == (
        ".version 9.0\n.target sm_90a, texmode_independent\nwgmma.fence.sync.aligned;\n// begin inline asm\n"
    )


def test_the_probe_is_a_program() -> None:
    """Without its assembly any device compiles it, and finds that nothing was multiplied."""
    found = [d for p in binding.platforms() for d in p.devices if d.kind == "cpu"]
    if not found:
        pytest.skip("no OpenCL device on this machine's processor")
    context = binding.make_context(found[0].raw)
    plain = re.sub(r"asm volatile\(.*?\);", ";", teams.probe(), flags=re.DOTALL)
    program = binding.build_source(context, found[0].raw, plain, OPTIONS)
    assert not binding.floats_of(context, found[0].raw, program, "probe", 128).any()
    assert np.float32(256) == teams.WANTED


APPROXIMATE = {
    "exp": 'asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r3) : "f"(x.s3 * 0x1.71547652b82fep+0f));',
    "recip": 'asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r3) : "f"(x.s3));',
}
"""Functions that the processor has, and the last lane of a vector by them."""


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("name", APPROXIMATE)
def test_functions_beside_products_are_the_processors_where_factors_may_be_rounded(name: str, reduced: bool) -> None:
    made = text(Dialect(ptx=True, reduced=reduced, teams=True), PRODUCT.replace("= c;", f"= {name}(c);"))
    exact = {"exp": "exp(c)", "recip": " / c"}[name]
    assert (APPROXIMATE[name] in made, exact in made) == (reduced, not reduced)


@pytest.mark.parametrize("reduced", [False, True])
def test_products_are_added_unrounded_beside_matrix_instructions_where_factors_may_be_rounded(reduced: bool) -> None:
    assert (CONTRACTED in text(Dialect(ptx=True, reduced=reduced, teams=True))) is reduced


def test_a_store_of_halves_is_given_what_is_not_rounded_yet() -> None:
    """Only where that is a constant too: a variable may have changed since."""
    stored = "let x = c + c;\n    let h = float16x4(x);\n    a[item * 4, align=8] = h;"
    changed = "let h = float16x4(c);\n    c = 0.0f32x4;\n    a[item * 4, align=8] = h;"
    source = PRODUCT.replace("bfloat16[4096] a", "float16[4096] a").replace(
        "wgmma_m64n32k16_bf16", "wgmma_m64n32k16_f16"
    )
    source = source.replace("bfloat16[2048] b", "float16[2048] b")
    made, kept = (
        text(Dialect(ptx=True, teams=True), source.replace("out[item * 4] = c;", t)) for t in (stored, changed)
    )
    assert "tile_half_bits_float16x4(x)" in made and "tile_half_bits_float16x4(h)" in kept


def test_products_that_go_on_around_a_loop_are_waited_for_with_all_sums() -> None:
    """Nothing is said of registers that an earlier product may still add to."""
    looped = PRODUCT.replace("    team_mma", "    for (i = 0; i < 4; i += 1) {\n    team_mma", 1)
    made = text(Dialect(ptx=True, teams=True), looped.replace("    async_wait", "    }\n    async_wait"))
    assert (
        "tile_ready" not in made and "wgmma.fence.sync.aligned" in made and "tile_products_4_0(&c, &d, &e, &f);" in made
    )


def test_a_core_has_registers_for_all_groups_of_a_loop_that_waits_for_its_products() -> None:
    looped = PRODUCT.replace("    team_mma", "    for (i = 0; i < 4; i += 1) {\n    team_mma", 1)
    made = text(Dialect(ptx=True, teams=True), looped.replace("async_wait(1, 0);", "async_wait(1, 0); }"))
    assert "tile_ready_4(&c, &d, &e, &f);" in made and 'asm volatile("//# groups 5" ::: "memory");' in made
    size = ".entry product()\n.reqntid 128, 1, 1\n{\n"
    assert ptx.retargeted(f"{size}//# groups 5\n") == size.replace("\n{", "\n.minnctapersm 5\n{") + "//# groups 5\n"
    assert ptx.retargeted(size) == size


HELD = """function product(readwrite global float32* out, read global bfloat16* x) group(32, 4, 1) subgroup(32) {
    alloc local bfloat16[4096] w [align=1024];
    alloc local bfloat16[2048] b [align=1024];
    let item = local_id(0) + 32 * local_id(1);
    let row = local_id(1) * 16 + local_id(0) / 4;
    let first = row * 64 + local_id(0) % 4 * 2;
    let at = first ^ (first >> 6) % 8 * 8;
    var c = 0.0f32x4;
    var d = 0.0f32x4;
    var e = 0.0f32x4;
    var f = 0.0f32x4;
    for (step = 0; step < 9; step += 1) {
        async_wait(0, 0);
        barrier("group", "local");
        async_copy b[item * 8] = x[item * 8], count=8, align=16;
        w[at, align=4] = splat(2.0bf16, 2);
        w[at + 512] = 1.0bf16;
        if (step < 4) { w[at + 513] = 1.0bf16; }
        w[at ^ 8, align=4] = splat(4.0bf16, 2);
        w[(at ^ 8) + 512, align=4] = splat(5.0bf16, 2);
        barrier("group", "local");
        team_mma "wgmma_m64n32k16_bf16" = w[0] * b[0, panels=2048], (c, d, e, f);
        async_wait(1, 0);
    }
    out[item * 4] = c;
}"""


def test_weights_that_items_store_where_they_hold_them_stay_in_registers() -> None:
    """No array, no fence for it, and no barrier behind it."""
    head, calls = head_and_calls(made := text(Dialect(ptx=True, teams=True), HELD))
    body = made.partition("kernel __attribute__")[2]
    assert [line.strip() for line in body.splitlines() if "w_" in line and "=" in line and "ushort2 w" not in line] == [
        "w_0 = tile_bits_bfloat16x2((float2)(2.0f));",
        "w_1.s0 = (ushort)(as_uint(1.0f) >> 16);",
        "w_1.s1 = (ushort)(as_uint(1.0f) >> 16);",
        "w_2 = tile_bits_bfloat16x2((float2)(4.0f));",
        "w_3 = tile_bits_bfloat16x2((float2)(5.0f));",
    ]
    assert (
        "tile_wgmma_m64n32k16_bf16_hp(&c, &d, &e, &f, w_0, w_1, w_2, w_3, tile_panels(b, (uint)(0) * 2u, 4096));"
        in calls
    )
    assert body.count("barrier(") == 1 and "fence.proxy" not in body and "local ushort w[" not in body
    assert '{%16, %17, %18, %19}, %20, p, 1, 1, 1;}"' in head


def test_straight_code_makes_weights_in_registers_of_more_groups() -> None:
    """No branch keeps scores beside the weights that are made of them."""
    lanes = HELD[HELD.index("w[at + 512]") : HELD.index("w[at ^ 8,")]
    straight = HELD.replace(lanes, "w[at + 512, align=4] = splat(1.0bf16, 2);\n")
    found = [re.findall(r"//# groups (\d)", text(Dialect(ptx=True, teams=True), source)) for source in (HELD, straight)]
    assert found == [["5"], ["9"]]


@pytest.mark.parametrize(
    ("old", "new", "barriers"),
    [
        ("row * 64 +", "row * 64 + 128 +", 2),
        ("w[at ^ 8,", "w[step,", 2),
        ("(c, d, e, f);", "(c, d, e, f); out[item] = float32(w[at]);", 2),
        ("= w[0] *", "= w[0, panels=4096] *", 2),
        ("async_copy b[item * 8] = x[item * 8], count=8, align=16;", "b[item] = x[item];", 2),
    ],
    ids=["another row", "where is not known", "read otherwise", "panels", "others' factors behind the barrier"],
)
def test_others_weights_lie_in_local_memory_and_other_barriers_stay(old: str, new: str, barriers: int) -> None:
    body = text(Dialect(ptx=True, teams=True), HELD.replace(old, new)).partition("kernel __attribute__")[2]
    assert body.count("barrier(") == barriers
    assert ("_hp(" in body) is ("b[item] =" in new)
