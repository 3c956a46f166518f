"""Spaces of our own over scikit-learn's models: categories that say which other parameters there are.

Folds and seeds are fixed. Losses are the mean squared error as a part of the variance (diabetes), the squared error of
the classes' probabilities, or the part of wrong classes (svc).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scripts.bench.tuner.problem import Parameter, Point, Problem, When
from scripts.bench.tuner.problems import crossval


def _if(name: str, *options: str) -> When:
    return ((name, options),)


COST = Parameter("C", 1e-3, 1e3, log=True)


MACHINE = (
    COST,
    Parameter("kernel", options=("linear", "rbf", "poly", "sigmoid")),
    Parameter("gamma", 1e-5, 10, log=True, when=_if("kernel", "rbf", "poly", "sigmoid")),
    Parameter("degree", 2, 5, whole=True, when=_if("kernel", "poly")),
    Parameter("coef0", 0, 5, when=_if("kernel", "poly", "sigmoid")),
)
SVC = (*MACHINE, Parameter("class_weight", options=("none", "balanced")))
SVR = (*MACHINE, Parameter("epsilon", 1e-3, 100, log=True))
KERNEL_RIDGE = (
    Parameter("alpha", 1e-6, 10, log=True),
    Parameter("kernel", options=("linear", "rbf", "laplacian", "poly", "sigmoid", "cosine")),
    Parameter("gamma", 1e-4, 10, log=True, when=_if("kernel", "rbf", "laplacian", "poly", "sigmoid")),
    Parameter("degree", 2, 5, whole=True, when=_if("kernel", "poly")),
    Parameter("coef0", 0, 5, when=_if("kernel", "poly", "sigmoid")),
)
PERCEPTRON = (
    Parameter("units", 4, 64, log=True, whole=True),
    Parameter("activation", options=("relu", "tanh", "logistic", "identity")),
    Parameter("alpha", 1e-6, 10, log=True),
    Parameter("solver", options=("lbfgs", "sgd", "adam")),
    Parameter("learning_rate_init", 1e-4, 1, log=True, when=_if("solver", "sgd", "adam")),
    Parameter("batch_size", options=(8, 16, 32, 64), ordered=True, when=_if("solver", "sgd", "adam")),
    Parameter("momentum", 0, 0.99, when=_if("solver", "sgd")),
    Parameter("learning_rate", options=("constant", "invscaling", "adaptive"), when=_if("solver", "sgd")),
    Parameter("power_t", 0.1, 0.9, when=_if("learning_rate", "invscaling")),
    Parameter("beta_1", 0.5, 0.99, when=_if("solver", "adam")),
)
BOOSTING = (
    Parameter("learning_rate", 0.01, 0.5, log=True),
    Parameter("n_estimators", 5, 30, log=True, whole=True),
    Parameter("max_depth", 1, 5, whole=True),
    Parameter("loss", options=("squared_error", "absolute_error", "huber")),
    Parameter("alpha", 0.5, 0.99, when=_if("loss", "huber")),
    Parameter("sampled", options=("all", "part")),
    Parameter("subsample", 0.3, 0.95, when=_if("sampled", "part")),
    Parameter("max_features", options=("all", "sqrt", "log2")),
)
PIPELINE = (
    Parameter("scaler", options=("none", "standard", "range", "robust", "quantiles")),
    Parameter("quantiles", options=(5, 10, 20, 50, 100), ordered=True, when=_if("scaler", "quantiles")),
    Parameter("shape", options=("uniform", "normal"), when=_if("scaler", "quantiles")),
    Parameter("model", options=("logistic", "neighbours", "tree", "bayes", "discriminant")),
    Parameter("C", 1e-3, 1e3, log=True, when=_if("model", "logistic")),
    Parameter("n_neighbors", 1, 50, log=True, whole=True, when=_if("model", "neighbours")),
    Parameter("weights", options=("uniform", "distance"), when=_if("model", "neighbours")),
    Parameter("metric", options=("euclidean", "manhattan", "chebyshev", "cosine"), when=_if("model", "neighbours")),
    Parameter("criterion", options=("gini", "entropy"), when=_if("model", "tree")),
    Parameter("max_depth", 1, 20, whole=True, when=_if("model", "tree")),
    Parameter("min_samples_leaf", 1, 50, log=True, whole=True, when=_if("model", "tree")),
    Parameter("var_smoothing", 1e-12, 1, log=True, when=_if("model", "bayes")),
    Parameter("shrinkage", 0, 1, when=_if("model", "discriminant")),
)
EXPANDED = (
    Parameter("features", options=("as they are", "polynomial", "splines", "kernel")),
    Parameter("knots", 3, 10, whole=True, when=_if("features", "splines")),
    Parameter("components", 10, 100, log=True, whole=True, when=_if("features", "kernel")),
    Parameter("gamma", 1e-3, 1, log=True, when=_if("features", "kernel")),
    Parameter("model", options=("ridge", "elastic", "huber", "machine")),
    Parameter("alpha", 1e-4, 1e3, log=True, when=_if("model", "ridge", "huber")),
    Parameter("strength", 1e-3, 100, log=True, when=_if("model", "elastic")),
    Parameter("l1_ratio", 0, 1, when=_if("model", "elastic")),
    Parameter("epsilon", 1.0, 3.0, when=_if("model", "huber")),
    Parameter("C", 1e-3, 1e3, log=True, when=_if("model", "machine")),
)


def _after_scaling(model: Any) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), model)


def svc(point: Point) -> Any:
    """Return a support vector machine for classes."""
    from sklearn import svm

    weight = "balanced" if point["class_weight"] == "balanced" else None
    return _after_scaling(svm.SVC(max_iter=20000, **{**point, "class_weight": weight}))


def svr(point: Point) -> Any:
    """Return a support vector machine for numbers."""
    from sklearn import svm

    return _after_scaling(svm.SVR(max_iter=20000, **point))


def kernel_ridge(point: Point) -> Any:
    """Return ridge regression with a kernel, of the deviations from the mean."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.preprocessing import StandardScaler

    return _after_scaling(TransformedTargetRegressor(KernelRidge(**point), transformer=StandardScaler()))


def perceptron(point: Point) -> Any:
    """Return a network with one hidden layer, trained for 30 epochs."""
    from sklearn.neural_network import MLPClassifier

    more = {name: value for name, value in point.items() if name != "units"}
    return _after_scaling(MLPClassifier((int(point["units"]),), max_iter=30, random_state=0, **more))


def boosting(point: Point) -> Any:
    """Return boosted trees."""
    from sklearn.ensemble import GradientBoostingRegressor

    more = {name: value for name, value in point.items() if name != "sampled"}
    features = None if point["max_features"] == "all" else point["max_features"]
    return GradientBoostingRegressor(random_state=0, **{**more, "max_features": features})


def pipeline(point: Point) -> Any:
    """Return a model after a scaler."""
    from sklearn import preprocessing
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.tree import DecisionTreeClassifier

    scalers = {
        "none": lambda: "passthrough",
        "standard": preprocessing.StandardScaler,
        "range": preprocessing.MinMaxScaler,
        "robust": preprocessing.RobustScaler,
        "quantiles": lambda: preprocessing.QuantileTransformer(
            n_quantiles=point["quantiles"], output_distribution=point["shape"], random_state=0
        ),
    }
    models = {
        "logistic": (lambda **more: LogisticRegression(max_iter=50, **more), ("C",)),
        "neighbours": (KNeighborsClassifier, ("n_neighbors", "weights", "metric")),
        "tree": (
            lambda **more: DecisionTreeClassifier(random_state=0, **more),
            ("criterion", "max_depth", "min_samples_leaf"),
        ),
        "bayes": (GaussianNB, ("var_smoothing",)),
        "discriminant": (lambda **more: LinearDiscriminantAnalysis("lsqr", **more), ("shrinkage",)),
    }
    model, arguments = models[str(point["model"])]
    return make_pipeline(scalers[str(point["scaler"])](), model(**{name: point[name] for name in arguments}))


def expanded(point: Point) -> Any:
    """Return a linear model of features that are made of the inputs."""
    from sklearn import linear_model
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler
    from sklearn.svm import LinearSVR

    features = {
        "as they are": lambda: "passthrough",
        "polynomial": PolynomialFeatures,
        "splines": lambda: SplineTransformer(point["knots"]),
        "kernel": lambda: Nystroem(gamma=point["gamma"], n_components=point["components"], random_state=0),
    }
    models = {
        "ridge": lambda: linear_model.Ridge(point["alpha"]),
        "elastic": lambda: linear_model.ElasticNet(point["strength"], l1_ratio=point["l1_ratio"], max_iter=200),
        "huber": lambda: linear_model.HuberRegressor(alpha=point["alpha"], epsilon=point["epsilon"], max_iter=50),
        "machine": lambda: LinearSVR(C=point["C"], max_iter=200, random_state=0),
    }
    made = features[str(point["features"])]()
    return make_pipeline(StandardScaler(), made, StandardScaler(), models[str(point["model"])]())


Learner = Callable[[Point], Any]
LEARNERS: dict[str, tuple[tuple[Parameter, ...], Learner, str, crossval.Measure]] = {
    "svc-digits": (SVC, svc, "digits", crossval.error),
    "svc-breast": (SVC, svc, "breast", crossval.error),
    "svr-diabetes": (SVR, svr, "diabetes", crossval.unexplained),
    "krr-diabetes": (KERNEL_RIDGE, kernel_ridge, "diabetes", crossval.unexplained),
    "mlp-wine": (PERCEPTRON, perceptron, "wine", crossval.brier),
    "gbr-diabetes": (BOOSTING, boosting, "diabetes", crossval.unexplained),
    "pipe-digits": (PIPELINE, pipeline, "digits", crossval.brier),
    "pipe-breast": (PIPELINE, pipeline, "breast", crossval.brier),
    "expanded-diabetes": (EXPANDED, expanded, "diabetes", crossval.unexplained),
}


def names() -> tuple[str, ...]:
    """Return the names of the problems."""
    return tuple(LEARNERS)


def make(name: str) -> Problem:
    """Return a problem."""
    space, learner, data, measure = LEARNERS[name]

    def true(point: Point) -> float:
        return crossval.validate(lambda: learner(point), data, measure)

    return Problem(name, "sklearn", space, true)
