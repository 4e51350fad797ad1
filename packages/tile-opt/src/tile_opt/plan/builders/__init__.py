"""Whole kernels for GPUs, built from plans where a sequence of steps would not do.

`group_tiles.py`: contractions on items, software-pipelined through local memory; `tensor_tiles.py`: on matrix instructions. `rows_in_steps.py`,
`row_parts.py`, `row_products.py`, `row_fragments.py` and `product_views.py`: kernels over rows walked piece by piece with an online softmax
(attention). `group_chain.py`: chains of stencils, part after part through local memory; `walking_chain.py`: the same along strips, through
registers.
"""
