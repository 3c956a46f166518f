"""nnlib as a trainer: what is checked of its networks, families, hyperparameters and data."""
