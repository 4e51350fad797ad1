"""Sample as a device for Tile."""
