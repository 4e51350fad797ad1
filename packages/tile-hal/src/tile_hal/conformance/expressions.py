"""Random elementwise statements whose results every backend must give bit by bit."""

from __future__ import annotations

from hypothesis import strategies as st
from tile_ir.dtype import DType

_ANY = (
    "{a}", "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} + {c}", "{a} * {c}", "({a} + {b}) * {c} - {a}", "max({a}, {b})",
    "min({a}, {b})", "max({a}, {c})", "({a} > {b} ? {a} : {b})", "({a} == {b} ? {c} : {a})", "({a} <= {c} ? {b} : {a})",
    "relu({a})", "sign({a})", "{a} * {b} + {a}", "({a} != {b} & {a} >= {c} ? {a} : {b})", "cond({a} < {b}, {c}, {a})",
)  # fmt: skip
_SIGNED = ("-{a}", "abs({a})", "-{a} * {b}")
_INTEGER = (
    "{a} & {b}", "{a} | {b}", "{a} ^ {c}", "~{a}", "{a} << {s}", "{a} >> {s}", "{a} / {b}", "{a} / {c}",
    "({a} & {c}) << {s} | {b}", "mod({a}, {b})", "fmod({a}, {b})", "mod({a}, {c})",
)  # fmt: skip
_FLOAT = (
    "floor({a})", "ceil({a} + {b})", "{a} * 0.5", "{a} - 0.25", "({a} > 0.5 ? {a} : {b})", "round({a})",
    "round_even({a} * 0.5)", "trunc({a} * 0.5)", "fmod({a}, {c})", "mod({a}, {b})", "clamp({a}, -1, {c})",
    "(isfinite({a}) ? {a} : {b})", "where(isnan({a}), {b}, {a})", "max({a}, -inf)",
)  # fmt: skip
_CONVERT = ("as_int({a}, 32)", "as_float({a}, 32)", "as_uint({a}, 8)", "as_int({a}, 8)", "as_bool({a})")


def _templates(dtype: DType) -> tuple[str, ...]:
    extra = _FLOAT if dtype.is_float else _INTEGER
    return (*_ANY, *extra, *(_SIGNED if dtype.is_float or dtype.is_signed else ()))


def elementwise_statements(draw: st.DrawFn, a: str, dtype: DType, b: str = "", result: str = "R") -> list[str]:
    """One or two statements that define `result` from tensors `a` and `b` of `dtype`, keeping the dtype."""
    values = {"a": a, "b": b or a, "c": str(draw(st.integers(0, 3))), "s": str(draw(st.integers(0, 70)))}
    text = draw(st.sampled_from(_templates(dtype))).format(**values)
    if draw(st.integers(0, 5)) or not _returns(dtype):
        return [f"{result} = {text};"]
    # Through another dtype and back: the conversions are part of the exact semantics.
    convert = draw(st.sampled_from(_CONVERT)).format(a=f"{result}1")
    return [f"{result}1 = {text};", f"{result}2 = {convert};", f"{result} = {_returns(dtype).format(a=f'{result}2')};"]


def _returns(dtype: DType) -> str:
    """The cast back to `dtype`, "" where the language has none."""
    if dtype in (DType.BFLOAT16, DType.BOOL):
        return ""
    kind = "float" if dtype.is_float else "int" if dtype.is_signed else "uint"
    return f"as_{kind}({{a}}, {dtype.bits})"
