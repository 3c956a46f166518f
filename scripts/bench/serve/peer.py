"""The plainest service of the same model: FastAPI, one handler, NumPy's or implicit's best items.

python -m scripts.bench.serve.peer numpy|implicit MODEL DATA PORT
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, HTTPException
from scipy import sparse

from nnlib.data.read_events import read_events
from nnlib.families.model_file import read_recipe_model
from nnlib.prediction.match_items import match_history
from nnlib.prediction.recommender import read_samples
from nnlib.util.threads import workers


def make_app(kind: str, model_file: Path, data: Path) -> FastAPI:
    """Return the service."""
    model = read_recipe_model(model_file)
    asked = match_history(read_events(data), model.items)
    rows = {name: n for n, name in enumerate(read_samples(data))}
    bought = asked.bought
    app = FastAPI()

    def by_numpy(row: int, k: int) -> tuple[Any, Any]:
        scores = model.scores(asked, np.array([row]))[0]
        scores[bought.indices[bought.indptr[row] : bought.indptr[row + 1]]] = -np.inf
        best = np.argpartition(scores, -k)[-k:]
        best = best[np.argsort(-scores[best])]
        return best, scores[best]

    best_of = _by_implicit(model, bought) if kind == "implicit" else by_numpy

    # No threads: FastAPI's are slower.
    async def recommendations(customer: str, k: int = 10) -> dict[str, Any]:
        if customer not in rows:
            raise HTTPException(404)
        items, scores = best_of(rows[customer], k)
        listed = zip(items.tolist(), scores.tolist(), strict=True)
        return {"customer": customer, "items": [{"item": model.items[item], "score": score} for item, score in listed]}

    async def ready() -> dict[str, bool]:
        return {"ready": True}

    app.get("/v1/regions/bench/customers/{customer}/recommendations")(recommendations)
    app.get("/readyz")(ready)
    return app


def _by_implicit(model: Any, bought: Any) -> Any:
    """Return implicit's own best items, by factors that it fitted itself to the same matrix, as many."""
    from implicit.als import AlternatingLeastSquares

    ones = np.ones(bought.nonzeros, np.float32)
    matrix = sparse.csr_matrix((ones, bought.indices, bought.indptr), (bought.examples, bought.width))
    als = AlternatingLeastSquares(int(model.recipe.hyperparameters["dims"]), iterations=1, num_threads=1)
    als.fit(matrix, show_progress=False)
    return lambda row, k: als.recommend(row, matrix[row], N=k)


if __name__ == "__main__":
    name, model_path, data_path, port = sys.argv[1:]
    with workers(1):
        application = make_app(name, Path(model_path), Path(data_path))
        uvicorn.run(application, port=int(port), log_level="warning", access_log=False)
