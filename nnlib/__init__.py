"""nnlib: a trainer that speaks DSSTNE's network and data files."""
