"""Attention, as people and front ends write it."""

from __future__ import annotations

SCORES = "P[h, s, t : H, S, T] = +(Q[h, s, d] * K[h, t, d]);"
SOFTMAX = """M[h, s, z : H, S, 1] = >({x}[h, s, t]), z < 1; E = exp({x} - M);
    Z[h, s, z : H, S, 1] = +(E[h, s, t]), z < 1;"""
VALUES = "O[h, s, d : H, S, D] = +({y}[h, s, t] * V[h, t, d]);"
COPIED = f"""{SCORES} M[h, s : H, S] = >(P[h, s, t]); M1 = max(-inf, M); M2[h, s, z : H, S, 1] = =(M1[h, s]), z < 1;
    MB[h, s, t : H, S, T] = =(M2[h, s, 0]); E = exp(P - MB); Z[h, s : H, S] = +(E[h, s, t]);
    ZB[h, s, t : H, S, T] = =(Z[h, s]); Y = E / ZB; {VALUES.format(y="Y")}"""
"""As a front end writes it that has no broadcasting."""
BODIES = {
    "scaled": f"{SCORES} X = P * 0.3; {SOFTMAX.format(x='X')} Y = E / Z; {VALUES.format(y='Y')}",
    "normalised last": f"{SCORES} {SOFTMAX.format(x='P')} {VALUES.format(y='E').replace('O[', 'W[')} O = W / Z;",
    "biased": f"{SCORES} X = P + B; {SOFTMAX.format(x='X')} Y = E / Z; {VALUES.format(y='Y')}",
    "capped": f"{SCORES} X = tanh(P / 3.0) * 3.0; {SOFTMAX.format(x='X')} Y = E / Z * 0.5; {VALUES.format(y='Y')}",
    "with copies between": COPIED,
    "rows of which nothing may be left": f"""{SCORES} X = B > 0.9 ? P : -inf;
        {SOFTMAX.format(x="X").replace("X - M", "X - (M == -inf ? 0 : M)")} Y = E / (Z == 0 ? 1 : Z); {VALUES.format(y="Y")}""",
    "masked": f"{SCORES} X = B > 0.5 ? P : -1e30; {SOFTMAX.format(x='X')} Y = E / Z; {VALUES.format(y='Y')}",
}


def source(body: str) -> str:
    return f"function (Q[H, S, D], K[H, T, D], V[H, T, D], B[S, T]) -> (O) {{ {body} }}"
