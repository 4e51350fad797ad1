"""`frozen` makes what ``@dataclass(frozen=True, slots=True)`` makes."""

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest
from tile_ir.frozen import frozen, replace


@dataclass(frozen=True, slots=True)
class Plain:
    x: int
    y: str = "y"
    z: list[int] = field(default_factory=list[int])


@frozen
class Quick:
    x: int
    y: str = "y"
    z: list[int] = field(default_factory=list[int])


@frozen
class Wide(Quick):
    more: float = 0.5


@frozen
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("odd")


@frozen
class Nothing:
    pass


Arguments = tuple[tuple[Any, ...], dict[str, Any]]
GIVEN: list[Arguments] = [
    ((1,), {}),
    ((1, "a"), {}),
    ((), {"x": 2, "z": [3]}),
    ((1, "a", [2]), {}),
    ((), {"y": "b", "x": 3}),
]


@pytest.mark.parametrize(("args", "named"), GIVEN)
def test_the_same_values(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    plain, quick = Plain(*args, **named), Quick(*args, **named)
    assert dataclasses.astuple(plain) == dataclasses.astuple(quick)
    assert repr(plain).replace("Plain", "Quick") == repr(quick)
    assert quick == Quick(*args, **named)
    assert replace(quick, y="other") == dataclasses.replace(quick, y="other") != quick
    assert copy.deepcopy(quick) == pickle.loads(pickle.dumps(quick)) == quick


def test_the_same_parameters_and_patterns() -> None:
    assert [*inspect.signature(Quick).parameters] == [*inspect.signature(Plain).parameters]
    assert Quick.__match_args__ == Plain.__match_args__
    assert Quick(1).z is not Quick(1).z, "a factory makes one for each"
    assert not hasattr(Quick(1), "__dict__")


def test_methods_are_compiled_when_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process makes values of half the classes that it imports."""
    module = sys.modules[frozen.__module__]
    compiled: list[type] = []
    methods: Callable[..., object] = vars(module)["_methods"]

    def counted(made: type, *given: object) -> object:
        compiled.append(made)
        return methods(made, *given)

    monkeypatch.setattr(module, "_methods", counted)

    @frozen
    class Late:
        x: int

        def __repr__(self) -> str:
            return "late"

    class Own(Late):
        __slots__ = ()

    assert not compiled
    assert Own(1) == Own(1) and hash(Late(2)) == hash(Late(2)) and repr(Late(3)) == "late"
    assert compiled == [Late]


WRONG: list[Arguments] = [((), {}), ((1, "a", [], 4), {}), ((1,), {"x": 1}), ((1,), {"w": 1})]


@pytest.mark.parametrize(("args", "named"), WRONG)
def test_wrong_arguments(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"__init__"):
        Quick(*args, **named)


def test_nothing_changes_a_value() -> None:
    value = Quick(1)
    with pytest.raises(FrozenInstanceError):
        value.x = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="w"):
        replace(value, w=1)


def test_inherited_fields_and_checks() -> None:
    wide = Wide(1, more=2.0)
    assert replace(wide, x=3) == Wide(3, "y", [], 2.0)
    assert type(replace(wide, x=3)) is Wide
    with pytest.raises(ValueError, match="odd"):
        Even(3)
    with pytest.raises(ValueError, match="odd"):
        replace(Even(2), number=3)
    assert Nothing() == replace(Nothing())


@dataclass(frozen=True)
class Ordinary:
    x: int
    y: int = field(kw_only=True, default=0)


def test_replace_of_ordinary_dataclasses() -> None:
    assert replace(Plain(1), x=2) == Plain(2)
    assert replace(Ordinary(1), y=2) == Ordinary(1, y=2)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is found once is found anew for another value."""

    x: int
    y: int = 0
    found: list[int] = field(default_factory=list[int], init=False, compare=False)


def test_replace_leaves_fields_that_are_no_parameters_at_their_defaults() -> None:
    old = Kept(1, 2)
    old.found.append(3)
    new = replace(old, x=4)
    assert new == Kept(4, 2) and not new.found
    with pytest.raises(ValueError, match="found"):
        replace(old, found=[])


def test_fields_that_are_no_positional_parameters() -> None:
    with pytest.raises(TypeError, match="Odd: the fields hidden must be positional"):

        @frozen
        class Odd:  # pyright: ignore[reportUnusedClass]
            hidden: int = field(init=False, default=0)


@frozen
class Counted:
    """Pickled without what it has counted."""

    name: str
    calls: int = 0

    def __getstate__(self) -> tuple[str]:
        return (self.name,)

    def __setstate__(self, state: tuple[str]) -> None:
        object.__setattr__(self, "name", state[0])
        object.__setattr__(self, "calls", 0)


def test_a_class_keeps_its_own_state() -> None:
    assert pickle.loads(pickle.dumps(Counted("a", 3))) == Counted("a", 0)
