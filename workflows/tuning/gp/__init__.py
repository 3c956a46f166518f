"""The Gaussian process that proposes by default."""
