"""The Tile optimizer: contraction analysis, Stripe passes, cost models, lowering to semtree."""
