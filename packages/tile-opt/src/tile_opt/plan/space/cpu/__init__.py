"""Legal plans on CPUs: register tiles of a contraction, packed operands, vectors along rows or columns, transposes, work groups.

`plans.py` is the entry; `tiles.py` lists register tiles and `tile_plans.py` writes the plan of one; `streams.py` has kernels without reuse.
"""
