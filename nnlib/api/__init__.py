"""The Python API: Network, Trainer, Predictor."""
