"""Layers of maps on processors: convolutions, and what else knows where a value stands."""
