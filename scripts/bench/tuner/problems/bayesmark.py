"""scikit-learn's models on its small data sets, with the ranges of bayesmark (github.com/uber/bayesmark).

Unlike there, folds and seeds are fixed, at most 500 rows are taken, errors of regressions are parts of the variance
(or the standard deviation), ranges that are uniform in the logit are uniform, or logarithmic in the distance from 1,
and `normalize` of linear models is left out, as scikit-learn no longer has it. Names are bayesmark's: model, data set,
loss (nll: logarithmic; acc: part of wrong classes; mse, mae).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scripts.bench.tuner.problem import Parameter, Point, Problem
from scripts.bench.tuner.problems import crossval

FOLDS = 5
LOSSES = {
    "acc": crossval.error,
    "nll": crossval.log_loss,
    "mse": crossval.unexplained,
    "mae": crossval.absolute,
}
YES_NO = ("yes", "no")
LOGISTIC = (Parameter("C", 1e-2, 1e2, log=True), Parameter("intercept_scaling", 1e-2, 1e2, log=True))
NEIGHBOURS = (Parameter("n_neighbors", 1, 25, whole=True), Parameter("p", 1, 4, whole=True))
MACHINE = (
    Parameter("C", 1.0, 1e3, log=True),
    Parameter("gamma", 1e-4, 1e-3, log=True),
    Parameter("tol", 1e-5, 1e-1, log=True),
)
TREE = (
    Parameter("max_depth", 1, 15, whole=True),
    Parameter("max_features", 0.01, 0.99),
    Parameter("min_samples_split", 0.01, 0.99),
    Parameter("min_samples_leaf", 0.01, 0.49),
    Parameter("min_weight_fraction_leaf", 0.01, 0.49),
    Parameter("min_impurity_decrease", 0.0, 0.5),
)
NETWORK = (
    Parameter("hidden_layer_sizes", 50, 200, whole=True),
    Parameter("alpha", 1e-5, 1e1, log=True),
    Parameter("batch_size", 10, 250, whole=True),
    Parameter("learning_rate_init", 1e-5, 1e-1, log=True),
    Parameter("tol", 1e-5, 1e-1, log=True),
    Parameter("validation_fraction", 0.1, 0.9),
)
ADAM = (
    *NETWORK,
    Parameter("1 - beta_1", 0.01, 0.5, log=True),
    Parameter("1 - beta_2", 1e-6, 0.1, log=True),
    Parameter("epsilon", 1e-9, 1e-6, log=True),
)
DESCENT = (*NETWORK, Parameter("power_t", 0.1, 0.9), Parameter("momentum", 0.001, 0.999))
RIDGE = (
    Parameter("alpha", 1e-2, 1e2, log=True),
    Parameter("fit_intercept", options=YES_NO),
    Parameter("max_iter", 10, 5000, log=True, whole=True),
    Parameter("tol", 1e-4, 1e-1, log=True),
)
LASSO = (*RIDGE[:3], Parameter("tol", 1e-5, 1e-1, log=True), Parameter("positive", options=YES_NO))


def _arguments(point: Point) -> dict[str, Any]:
    """Return a point as a model takes it."""
    found: dict[str, Any] = {}
    for name, value in point.items():
        if name.startswith("1 - "):
            found[name.removeprefix("1 - ")] = 1 - float(value)
        else:
            found[name] = value == "yes" if value in YES_NO else value
    return found


def _knn(point: Point) -> Any:
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(**_arguments(point))


def _svc(point: Point) -> Any:
    from sklearn.svm import SVC

    return SVC(**_arguments(point))


def _tree(point: Point) -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(random_state=0, **_arguments(point))


def _forest(point: Point) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(n_estimators=10, random_state=0, **_arguments(point))


def _adam(point: Point) -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(solver="adam", early_stopping=True, random_state=0, **_arguments(point))


def _descent(point: Point) -> Any:
    from sklearn.neural_network import MLPClassifier

    more = _arguments(point)
    return MLPClassifier(solver="sgd", early_stopping=True, learning_rate="invscaling", random_state=0, **more)


def _logistic(point: Point) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(solver="liblinear", random_state=0, **_arguments(point))


def _lasso(point: Point) -> Any:
    from sklearn.linear_model import Lasso

    return Lasso(**_arguments(point))


def _ridge(point: Point) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(**_arguments(point))


MODELS: dict[str, tuple[tuple[Parameter, ...], Callable[[Point], Any]]] = {
    "knn-digits-nll": (NEIGHBOURS, _knn),
    "svm-digits-acc": (MACHINE, _svc),
    "svm-wine-acc": (MACHINE, _svc),
    "dt-breast-nll": (TREE, _tree),
    "rf-diabetes-mse": (TREE, _forest),
    "mlp-adam-wine-nll": (ADAM, _adam),
    "mlp-sgd-iris-nll": (DESCENT, _descent),
    "linear-breast-nll": (LOGISTIC, _logistic),
    "lasso-diabetes-mae": (LASSO, _lasso),
    "linear-diabetes-mse": (RIDGE, _ridge),
}


def names() -> tuple[str, ...]:
    """Return the names of the problems."""
    return tuple(MODELS)


def make(name: str) -> Problem:
    """Return a problem."""
    space, model = MODELS[name]
    _, data, loss = name.rsplit("-", 2)

    def true(point: Point) -> float:
        return crossval.validate(lambda: model(point), data, LOSSES[loss], FOLDS)

    return Problem(name, "bayesmark", space, true)
