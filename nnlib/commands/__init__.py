"""The commands of `nnlib`, one module each: what it takes, and what it does with that."""
