"""Layers of maps on a GPU: convolution, pooling, joins, and batch normalization by channel."""
