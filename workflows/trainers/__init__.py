"""Programs of the user's that train in nnlib's place: what their jobs get."""
