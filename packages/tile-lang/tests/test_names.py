"""Names for what the compiler adds."""

from tile_ir.dtype import DType
from tile_ir.names import claim, fresh
from tile_ir.program.nodes import TensorType
from tile_lang import bind, parse
from tile_lang.builtins import BUILTINS
from tile_lang.foreign import AGGREGATED, FOREIGN, STATEMENTS, USAGE, WORDS


def test_fresh_names_count_up_from_the_wanted_one() -> None:
    assert fresh("A", {}) == "A"
    assert fresh("A", {"A": 0, "A_1": 0, "A_3": 0}) == "A_2"
    taken = {"A"}
    assert [claim("A", taken) for _ in range(3)] == ["A_1", "A_2", "A_3"]
    assert taken == {"A", "A_1", "A_2", "A_3"}


def test_what_is_written_instead_of_foreign_names_binds() -> None:
    assert not {*FOREIGN, *STATEMENTS, *WORDS} & BUILTINS.keys()
    assert BUILTINS.keys() & AGGREGATED.keys() == {"max", "min"} and USAGE.keys() <= BUILTINS.keys()
    types = {n: TensorType(DType.INT32 if n == "X" else DType.FLOAT32, (2,)) for n in "XYAB"}
    for written in FOREIGN.values():
        text = written.replace("low", "0").replace("high", "1")
        bind(parse(f"function (X, Y, A, B) -> (O) {{ O = {text}; }}"), types)


def test_statements_that_stand_for_foreign_functions_parse() -> None:
    for written in {*STATEMENTS.values()}:
        parse(f"function (A, N) -> (O) {{ {written} }}")
