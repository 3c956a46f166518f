"""Who leaves? A logistic regression by region: judged by 5-fold cross-validation, tested on the last third."""

import json
import sys
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from regiondag.trial import load, report

trial = load(strength=1.0, degree=1)  # the values count where it is tried by hand
values = trial["hyperparameters"]

table = np.loadtxt(sys.argv[1], delimiter=",", skiprows=1)
x, y = table[:, :-1], table[:, -1]
known = len(table) * 2 // 3

scale, products = StandardScaler(), PolynomialFeatures(values["degree"], interaction_only=True, include_bias=False)
classifier = LogisticRegression(C=values["strength"], max_iter=1000)
model = make_pipeline(scale, products, classifier)

if trial["role"] == "tune":
    scores = cross_val_score(model, x[:known], y[:known], cv=5, scoring="roc_auc")
    report(auc=scores.mean(), stderr=scores.std(ddof=1) / len(scores) ** 0.5)
else:
    model.fit(x[:known], y[:known])
    report(auc=roc_auc_score(y[known:], model.decision_function(x[known:])))
    names = products.get_feature_names_out(["months", "spent", "visits", "complaints"])
    made = {
        "scaled": {"mean": scale.mean_.tolist(), "by": scale.scale_.tolist()},
        "weights": dict(zip(names, classifier.coef_[0].tolist(), strict=True)),
        "intercept": classifier.intercept_[0],
    }
    Path(trial["artifact"], "model.json").write_text(json.dumps(made, indent=1))
