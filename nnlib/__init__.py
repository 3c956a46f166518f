"""nnlib: a trainer that speaks DSSTNE's network and data files."""

__version__ = "0.1.0"
