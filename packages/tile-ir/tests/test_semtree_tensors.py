"""Copies of boxes of tensors: what they bring, round and leave out, and what may not be said."""

import numpy as np
import pytest
from tile_ir.semtree import SemtreeError, launch, parse_function
from tile_ir.semtree.errors import SemtreeRuntimeError
from tile_ir.semtree.verify import verify

COPY = """function copy(write global float32* out, read global float32* a) group(32, 1, 1) {
    alloc local float32[512] box [align=1024];
    let item = local_id(0);
    tensor_copy box[0] = a, (ROW, 6, 36, 8, STEP), (COLUMN, 36, 1, 32, 1), 0;
    async_wait(0, 0);
    barrier("group", "local");
    for (n = 0; n < 8; n += 1) { out[group_id(0) * 256 + n * 32 + item] = box[n * 32 + (item ^ n * 4)]; }
}"""


def source(row: object = 0, column: object = 0, step: int = 1) -> str:
    return COPY.replace("ROW", str(row)).replace("COLUMN", str(column)).replace("STEP", str(step))


def copied(a: np.ndarray, row: object = 0, column: object = 0, step: int = 1) -> np.ndarray:
    """By two groups, which do the same."""
    out = np.full(512, 7, np.float32)
    launch(parse_function(source(row, column, step)), (2, 1, 1), [out, a.reshape(-1)])
    assert np.array_equal(out[:256], out[256:], equal_nan=True)
    return out[:256].reshape(8, 32)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (2, 32), ("0 - 3", "0 - 5"), (6, 0)])
def test_what_is_outside_is_zero(row: object, column: object) -> None:
    """Before and behind the tensor, wherever the next row begins."""
    a = np.arange(216, dtype=np.float32).reshape(6, 36)
    first, start = (int(eval(str(x))) for x in (row, column))
    wide = np.zeros((40, 100), np.float32)
    wide[10:16, 10:46] = a
    assert np.array_equal(copied(a, row, column), wide[10 + first : 18 + first, 10 + start : 42 + start])


def test_boxes_step_over_what_is_between() -> None:
    a = np.arange(216, dtype=np.float32).reshape(6, 36)
    wanted = np.zeros((8, 32), np.float32)
    wanted[1:4] = a[1::2, :32]
    assert np.array_equal(copied(a, "0 - 1", 0, 2), wanted)


def test_elements_are_rounded_ties_to_even() -> None:
    bits = [0x3F800FFF, 0x3F801000, 0x3F801001, 0x3F803000, 0xBF803000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 1]
    wanted = [0x3F800000, 0x3F800000, 0x3F802000, 0x3F804000, 0xBF804000, 0x7F800000, 0x7F800000, 0xFF800000, 0]
    a = np.zeros(216, np.uint32)
    a[: len(bits)], a[len(bits)] = bits, 0x7FC01234
    got = copied(a.view(np.float32))[0].view(np.uint32)
    assert got[: len(bits)].tolist() == wanted and np.isnan(got.view(np.float32)[len(bits)])


def test_the_box_is_not_there_before_it_is_waited_for() -> None:
    with pytest.raises(SemtreeRuntimeError, match="a copy still fills"):
        launch(
            parse_function(source().replace("async_wait(0, 0);", "")),
            (1, 1, 1),
            [np.zeros(256, np.float32), np.zeros(216, np.float32)],
        )


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ("36, 1, 32, 1", "36, 1, 16, 1"),
        ("36, 1, 32, 1", "36, 2, 32, 1"),
        ("36, 1, 32, 1", "36, 1, 32, 2"),
        ("6, 36, 8, 1", "6, 37, 8, 1"),
        ("6, 36, 8, 1", "6, 36, 257, 1"),
        ("6, 36, 8, 1", "6, 36, 8, 9"),
        ("6, 36, 8, 1", "6, 36, 129, 2"),
        ("box[0] = a", "a[0] = a"),
    ],
)
def test_what_no_copy_can_do(given: str, wrong: str) -> None:
    with pytest.raises(SemtreeError):
        verify(parse_function(source().replace(given, wrong)))
