"""A fuzz farm: random programs under random configurations against the reference evaluator, for as long as it is given.

`draw` makes a program of a seed and a number, `ways` the configurations that it is tried under, `errors` bounds by how
much two correct implementations may differ on it, `judge` runs and compares, `workers` survives what crashes or hangs,
`reduce` makes small programs of failing ones, and `report` writes a summary and a regression test for each.
"""
