"""Schedules as data: a plan says how one kernel runs on one machine, and is built into scheduled Stripe.

`plan.py` defines plans, `text.py` and `reader.py` their text form, `names.py` and `again.py` carry a plan over to an equal kernel; `check.py` and
`checks.py` refuse plans that do not fit. `space/` proposes legal plans for a kernel and a target, `build.py` turns a plan into nested blocks: it
runs the rewrites of `steps/` on a `tree.py`, or one of the `builders/`. `segments.py` cuts loops into full tiles and remainders, `panels.py` packs
operands before the kernel.
"""
