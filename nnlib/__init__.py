"""nnlib: a trainer that speaks DSSTNE's network and data files.

    from nnlib import Network, Predictor, Trainer

    network = Network.from_json("network.json", {"hidden": 128})
    trained = Trainer(network, epochs=20).fit(inputs, targets, valid=(more_inputs, more_targets))
    items, scores = Predictor(trained).top_k(inputs, k=10)

The same from the command line: `nnlib --help`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nnlib.api.network import Network
    from nnlib.api.predictor import Predictor
    from nnlib.api.trainer import Trainer
    from nnlib.data.rows import Csr
    from nnlib.data.sets import Data, DataSet
    from nnlib.errors import DataError, DivergedError, MachineError, NnlibError

__version__ = "0.1.0"
__all__ = [
    "Csr",
    "Data",
    "DataError",
    "DataSet",
    "DivergedError",
    "MachineError",
    "Network",
    "NnlibError",
    "Predictor",
    "Trainer",
    "__version__",
]

HOMES = {
    "Csr": "data.rows",
    **dict.fromkeys(("Data", "DataSet"), "data.sets"),
    "Network": "api.network",
    "Predictor": "api.predictor",
    "Trainer": "api.trainer",
    **dict.fromkeys(("DataError", "DivergedError", "MachineError", "NnlibError"), "errors"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import nnlib` needs the standard library only."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"nnlib.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
