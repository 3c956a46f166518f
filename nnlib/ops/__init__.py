"""The mathematics, without a device: activations, losses, targets, ranking."""
