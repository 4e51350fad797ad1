"""Legal plans on processors with vector registers and caches."""
