"""Mutants by hand: one line changed each, and the tests that have to notice.

`compiler` and `sample` are the tables, `run` applies a mutant to a copy of its package and runs the tests against it.
"""
