"""Steps for groups of items (thread blocks): mapping loops to a grid, staging in local memory, reductions and scans across items.

`axes.py` and `spread.py` map iterations, `staging.py`, `copy.py`, `transpose.py` and `team_copy.py` fill local memory without bank conflicts (`banks.py`),
`combine.py`, `teams.py`, `share_reduction.py` and `last_group.py` put partial results together, `tensorise.py` and `fragments.py` use matrix instructions.
"""
