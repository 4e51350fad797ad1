"""Run Tile functions on any device, and the tile command."""
