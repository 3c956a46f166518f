"""Who trains a region's trials: `trainer` and `jobs` are what is asked of nnlib and of programs of the user's alike."""
