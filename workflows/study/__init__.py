"""What a study is: model, space, constraints, job rules. Data and pure functions."""
