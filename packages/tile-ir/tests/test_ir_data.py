"""Dtypes and promotion, diagnostics, affine forms, targets: the data that every stage shares."""

from __future__ import annotations

import itertools
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.diagnostics import Diagnostic, Note, Source, Span, TileDeviceError, TileError, TileSyntaxError
from tile_ir.dtype import DType, Kind, from_numpy, promote
from tile_ir.kernels import Kernel, KernelList
from tile_ir.ops import Aggregation
from tile_ir.settings import Settings
from tile_ir.stripe.affine import Affine, DivMod, DivModOp
from tile_ir.stripe.nodes import Block, Layout, TensorType, row_major_strides
from tile_ir.target import HardwareSettings, PassConfig, Target

# --- dtypes --------------------------------------------------------------------------------------


def test_promotion_is_symmetric_idempotent_and_associative_up_to_floats() -> None:
    for a, b in itertools.product(DType, DType):
        assert promote(a, b) is promote(b, a)
        assert promote(a, a) is a
        assert promote(a, b).is_float == (a.is_float or b.is_float)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("int8", "uint8", "int16"), ("int32", "uint32", "int64"), ("int64", "uint64", "int64"),
        ("float16", "bfloat16", "float32"), ("float16", "int64", "float16"), ("float32", "float64", "float64"),
        ("bool", "uint8", "uint8"), ("int16", "int64", "int64"), ("uint16", "int32", "int32"),
    ],
)  # fmt: skip
def test_promotion_table(left: str, right: str, result: str) -> None:
    assert promote(DType(left), DType(right)) is DType(result)


def test_dtypes_agree_with_numpy() -> None:
    for dtype in DType:
        if dtype is DType.BFLOAT16:
            continue
        assert dtype.numpy.itemsize == dtype.bytes
        assert from_numpy(dtype.numpy.newbyteorder()) is dtype
        if dtype.is_integer:
            assert (dtype.min_value, dtype.max_value) == (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max)
            assert dtype.is_signed == (dtype.kind is Kind.SIGNED)
    with pytest.raises(TypeError, match="complex64"):
        from_numpy(np.complex64)


def test_half_floats_accumulate_in_float32() -> None:
    assert [d.accumulator for d in (DType.FLOAT16, DType.BFLOAT16, DType.INT8)] == [DType.FLOAT32] * 2 + [DType.INT8]
    assert Aggregation.MAX.identity(DType.FLOAT32) == -np.inf
    assert Aggregation.MIN.identity(DType.UINT8) == 255


# --- diagnostics ---------------------------------------------------------------------------------


def test_a_diagnostic_shows_the_line_with_carets() -> None:
    source = Source("function (A)\n  -> (B) { B = C; }\n", "f.tile")
    span = Span(source, 25 + 3, 25 + 4)
    note = Note("inputs are listed here", Span(source, 9, 12))
    text = Diagnostic("TILE-E012", "C is not defined", span, "add it to the inputs", (note,)).render()
    assert text.splitlines() == [
        "f.tile:2:16: error TILE-E012: C is not defined",
        "    2 |   -> (B) { B = C; }",
        "      |                ^",
        "f.tile:1:10: note: inputs are listed here",
        "    1 | function (A)",
        "      |          ^^^",
        "  hint: add it to the inputs",
    ]


def test_long_lines_are_cut_around_the_span() -> None:
    source = Source("x" * 500 + "?" + "y" * 500)
    text = Diagnostic("TILE-E001", "no", Span(source, 500, 501)).render().splitlines()
    assert len(text[1]) < 140
    assert text[1][text[2].index("^")] == "?"


def test_excerpts_hold_one_printable_character_a_column() -> None:
    source = Source("a\x1b[31m\t\ufeffb;\r\n")
    excerpt, carets = Diagnostic("TILE-E001", "no", Span(source, 8, 9)).render().splitlines()[1:]
    assert excerpt.endswith("| a\ufffd[31m \ufffdb;")
    assert carets.index("^") == excerpt.index("b;")


def test_errors_pickle_with_their_diagnostics() -> None:
    error = TileSyntaxError([Diagnostic("TILE-E001", "one", Span(Source("ab"), 0, 1)), Diagnostic("TILE-E002", "two")])
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, TileSyntaxError) and isinstance(copy, TileError)
    assert copy.diagnostics == error.diagnostics and str(copy) == str(error)


# --- affine forms --------------------------------------------------------------------------------

NAMES = ("i", "j", "k")
FORMS = st.builds(Affine.of, st.dictionaries(st.sampled_from(NAMES), st.integers(-9, 9)), st.integers(-99, 99))
POINTS = st.fixed_dictionaries({n: st.integers(-20, 20) for n in NAMES})


@settings(max_examples=100)
@given(FORMS, FORMS, st.integers(-5, 5), POINTS)
def test_affine_arithmetic_is_that_of_its_values(a: Affine, b: Affine, factor: int, point: dict[str, int]) -> None:
    x, y = a.evaluate(point), b.evaluate(point)
    assert (a + b).evaluate(point) == x + y
    assert (a - b).evaluate(point) == x - y
    assert (a * factor).evaluate(point) == factor * x
    assert a + b == b + a and (a - a) == Affine()
    moved = {**point, "i": y}
    assert a.substitute({"i": b}).evaluate(point) == a.evaluate(moved)


@settings(max_examples=50)
@given(FORMS, st.dictionaries(st.sampled_from(NAMES), st.tuples(st.integers(-5, 0), st.integers(0, 5)), min_size=3))
def test_bounds_are_attained(form: Affine, ranges: dict[str, tuple[int, int]]) -> None:
    corners = [form.evaluate(dict(zip(ranges, c, strict=True))) for c in itertools.product(*ranges.values())]
    assert form.bounds(ranges) == (min(corners), max(corners))


@settings(max_examples=50)
@given(FORMS, st.integers(1, 7), FORMS, POINTS)
def test_div_and_mod_are_floored(num: Affine, den: int, plus: Affine, point: dict[str, int]) -> None:
    div, mod = DivMod(num, den, DivModOp.DIV), DivMod(num, den, DivModOp.MOD)
    assert div.evaluate(point) * den + mod.evaluate(point) == num.evaluate(point)
    assert 0 <= mod.evaluate(point) < den
    scaled = DivMod(num, den, DivModOp.DIV, 3, plus)
    assert scaled.evaluate(point) == 3 * div.evaluate(point) + plus.evaluate(point)


def test_packed_types_and_reshapes() -> None:
    assert row_major_strides((2, 3, 4)) == (12, 4, 1)
    a, b = (TensorType.row_major(DType.INT8, sizes) for sizes in ((4, 6), (2, 12)))
    assert a.is_packed and a.reshapes(b) and not a.reshapes(a)


def test_a_view_spans_the_gaps_between_its_rows() -> None:
    rows = TensorType(DType.FLOAT16, (3, 4), Layout((10, 1)))
    assert (rows.extent, rows.nbytes) == (24, 48)
    assert TensorType(DType.FLOAT16, (3, 0), Layout((10, 1))).extent == 0
    assert TensorType(DType.FLOAT16, (), Layout(())).extent == 1
    assert [TensorType(DType.INT8, (3, 4), Layout(s)).solid for s in ((10, 1), (4, 1), (1, 3), (2, 12))] == [
        4,
        12,
        12,
        1,
    ]


# --- targets -------------------------------------------------------------------------------------


def test_targets_round_trip_and_read_the_slides_pass_entries() -> None:
    target = Target(
        "cpu", HardwareSettings(cores=4, dim_sizes=(1, 2, 3)), "stripe",
        (PassConfig("fusion", "fuse_CONV", {"a_reqs": ["CONV"]}),), {"clock_mhz": 1000}, frozenset({"Fma"}),
    )  # fmt: skip
    assert Target.from_json(target.to_json()) == target
    assert target.resolved(threads=8).settings.threads == 8
    slide = {"name": "x", "passes": [{"name": "loc_CONV", "locate_block": {"reqs": ["CONV"]}}]}
    (entry,) = Target.from_json(json.dumps(slide)).passes
    assert (entry.name, entry.label, entry.options) == ("locate_block", "loc_CONV", {"reqs": ["CONV"]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a target is a JSON document"),
        ("[" * 100_000, "nested"),
        ("[]", "a target is a table"),
        ('{"name": 7}', "name of a target is text, not 7"),
        ('{"name": "x", "nodes": "Fma"}', "nodes of a target is a list of names"),
        ('{"name": "x", "matrix": [7]}', "matrix of a target is a list of names"),
        ('{"name": "x", "model": 7}', "model of a target is a table"),
        ('{"name": "x", "passes": [{"name": "n", "a": {}, "b": {}}]}', "a pass is"),
        ('{"name": "x", "passes": [{"name": "n"}]}', "a pass is"),
        ('{"name": "x", "passes": [{"name": 7, "a": {}}]}', "a pass is"),
        ('{"name": "x", "passes": [{"a": 7}]}', "a pass is"),
        ('{"name": "x", "settings": 7}', "not a table of fields"),
    ],
)
def test_a_document_that_is_no_target_is_a_sentence(text: str, message: str) -> None:
    with pytest.raises(TileDeviceError, match=message):
        Target.from_json(text)


@pytest.mark.parametrize("value", ["maybe", "0", "-1", "1.5", " 2", "²", "9" * 5000])
@pytest.mark.parametrize("name", ["TILE_CACHE", "TILE_NUM_THREADS"])
def test_malformed_settings_are_errors_of_the_user(name: str, value: str) -> None:
    with pytest.raises(TileError, match=f"{name} must be") as caught:
        Settings.from_environment({name: value})
    assert isinstance(caught.value, ValueError)


def test_empty_settings_count_as_unset() -> None:
    names = ("DEVICE", "DUMP_IR", "VERIFY", "CACHE_DIR", "CACHE", "NUM_THREADS")
    assert Settings.from_environment({f"TILE_{n}": "" for n in names}) == Settings()


# --- kernel lists --------------------------------------------------------------------------------


def test_kernels_and_lists_of_them_are_one_line_at_a_prompt() -> None:
    kernels = tuple(
        Kernel(f"sum_{n}", Block(f"sum_{n}", comment="long " * 1000), None, (4, 1, 1), 8, 16) for n in range(6)
    )
    assert repr(kernels[0]) == "<Kernel 'sum_0', groups (4, 1, 1), 8 operations, 16 bytes>"
    found = repr(KernelList(kernels, (), (), Target("interp")))
    assert found == "<KernelList for interp: sum_0, sum_1, sum_2, sum_3 and 2 more; 0 steps, 0 buffers>"
