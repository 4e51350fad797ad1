"""What the Tile compiler and its hardware share, as data."""
