"""Loops compiled by Numba, for what NumPy does in several passes or not at all."""
