"""Whether a run is what its records say, and gives the same again."""
