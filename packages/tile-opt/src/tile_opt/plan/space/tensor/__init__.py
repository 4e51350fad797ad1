"""Legal plans on matrix instructions of sub-groups (tensor cores)."""
