"""Update formulas, their hyperparameters, the learning rate's schedule."""
