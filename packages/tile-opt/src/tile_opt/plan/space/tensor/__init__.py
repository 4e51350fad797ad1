"""Legal plans on a GPU's matrix instructions (tensor cores): tiles of groups and of sub-groups (warps), and split reductions (`shares.py`)."""
