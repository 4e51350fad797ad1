"""What a processor that no document describes is like: short loops, timed once and kept on disk."""
