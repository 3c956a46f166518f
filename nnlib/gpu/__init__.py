"""Training and prediction on a GPU: the same mathematics as the modules above, by the kernels in kernels/."""
