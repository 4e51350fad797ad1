"""Programs for any number of rows: pieces of certain sizes, compiled once each, run over all rows of a call.

`row_values` shows that a program computes each row from that row alone; `runs` divides a number of rows into pieces,
and `joined` links the pieces' kernel lists to one for all rows.
"""

from tile_runtime.rows.join import Piece as Piece
from tile_runtime.rows.join import joined as joined
from tile_runtime.rows.rule import row_values as row_values
from tile_runtime.rows.runs import Run as Run
from tile_runtime.rows.runs import least_rows as least_rows
from tile_runtime.rows.runs import runs as runs
