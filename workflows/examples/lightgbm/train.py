"""Who leaves? LightGBM by region: each round is reported, so that trials end early where others are better."""

import sys
from pathlib import Path

sys.path.insert(0, "lib")  # which goes with the job
import lightgbm
import numpy as np

from regiondag.trial import load, report

trial = load(learning_rate=0.1, num_leaves=15, min_data_in_leaf=20, lambda_l2=1.0)

table = np.loadtxt(sys.argv[1], delimiter=",", skiprows=1)
x, y = table[:, :-1], table[:, -1]
known, kept = len(table) // 2, len(table) * 3 // 4
# What decides is the third quarter; the champion learns from it, too, and is tested on the fourth.
learned, judged = (slice(known), slice(known, kept)) if trial["role"] == "tune" else (slice(kept), slice(kept, None))


def tell(round_: lightgbm.callback.CallbackEnv) -> None:
    """Report the AUC of the rows that judge, after each round."""
    [(_, _, auc, _)] = round_.evaluation_result_list
    report(epoch=round_.iteration + 1, auc=auc)


settings = {"objective": "binary", "metric": "auc", "seed": trial["seed"], "deterministic": True, "verbosity": -1}
train = lightgbm.Dataset(x[learned], y[learned])
valid = lightgbm.Dataset(x[judged], y[judged], reference=train)
model = lightgbm.train(
    {**settings, **trial["hyperparameters"], "num_threads": 1}, train, trial["epochs"], [valid], callbacks=[tell]
)
model.save_model(Path(trial["artifact"], "model.txt"))
