"""Names for what the compiler adds."""

from tile_ir.names import claim, fresh


def test_fresh_names_count_up_from_the_wanted_one() -> None:
    assert fresh("A", {}) == "A"
    assert fresh("A", {"A": 0, "A_1": 0, "A_3": 0}) == "A_2"
    taken = {"A"}
    assert [claim("A", taken) for _ in range(3)] == ["A_1", "A_2", "A_3"]
    assert taken == {"A", "A_1", "A_2", "A_3"}
