"""Purchases and DSSTNE's text files, made into data files."""
