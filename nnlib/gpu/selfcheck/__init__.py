"""Each kernel once beside its reference in NumPy, on the GPU at hand."""
