"""Epochs, validation, early stop, checkpoints."""
