"""How good a network's recommendations are: metrics with intervals."""
