"""Parts every emitter shares: name allocation, statement walker, C-like printer."""
