"""Names that nothing else has."""

from __future__ import annotations

from tile_ir.names import claim, fresh


class Asked(set[str]):
    """Names, and how often somebody asked for one."""

    asked = 0

    def __contains__(self, name: object) -> bool:
        self.asked += 1
        return super().__contains__(name)


def test_names_are_numbered_without_asking_for_all_of_them() -> None:
    taken = Asked()
    names = [claim("x", taken) for _ in range(3000)]
    assert names[:4] == ["x", "x_1", "x_2", "x_3"] and len(set(names)) == 3000
    taken.asked = 0
    assert fresh("x", taken) == "x_3000"
    assert taken.asked < 30


def test_a_gap_is_no_reason_to_take_a_name_again() -> None:
    taken = {"x", "x_1", "x_2", "x_4", "x_5", "x_7"}
    for _ in range(10):
        assert claim("x", taken) in taken
    assert len(taken) == 16
