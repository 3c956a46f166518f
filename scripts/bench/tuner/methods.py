"""Which tuners are compared: their names, where each is made, its environment and its version."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from scripts.bench.common.environments import (
    AX,
    OPTUNA,
    SMAC,
    ax_python,
    optuna_python,
    smac_python,
)
from scripts.bench.common.kept_runs import digest_of
from scripts.bench.common.processes import REPOSITORY

OUR_SOURCES = ("workflows/tuning/**/*.py", "workflows/study/space.py", "workflows/study/constraints.py")


@dataclass(frozen=True)
class Method:
    """One tuner: a module of the package `tuners` and what its `make` takes besides the task."""

    title: str
    module: str
    version: str
    options: Mapping[str, Any] = field(default_factory=dict)
    python: Callable[[], Path] = lambda: Path(sys.executable)
    checkout: Path | None = None  # whose code is ours


def _optuna(title: str, sampler: str, **options: Any) -> Method:
    settings = ", ".join(f"{name}={value}" for name, value in options.items())
    version = f"optuna {OPTUNA} {sampler}({settings})"
    return Method(title, "optuna_side", version, {"sampler": sampler, **options}, optuna_python)


def ours(title: str, checkout: Path = REPOSITORY) -> Method:
    """Return our default method as the code of a checkout has it."""
    return Method(title, "ours", digest_of(OUR_SOURCES, checkout), checkout=checkout)


OURS, RANDOM, TPE, TPE_GROUP, GP_SAMPLER, CMA_ES = "bayes", "random", "tpe", "tpe_group", "gpsampler", "cmaes"
SMAC3, AX_BOTORCH, SKOPT = "smac", "ax", "skopt"


@cache
def methods() -> dict[str, Method]:
    """Return all tuners by name."""
    skopt = f"scikit-optimize {metadata.version('scikit-optimize')}"
    together = {"multivariate": True, "group": True, "constant_liar": True}
    return {
        OURS: ours("bayes"),
        RANDOM: Method("random", "uniform", "1"),
        TPE: _optuna("Optuna's TPE", "TPESampler"),
        TPE_GROUP: _optuna("Optuna's TPE, multivariate, group", "TPESampler", **together),
        GP_SAMPLER: _optuna("Optuna's GPSampler", "GPSampler"),
        CMA_ES: _optuna("Optuna's CmaEsSampler", "CmaEsSampler", warn_independent_sampling=False),
        SMAC3: Method("SMAC3", "smac_side", f"smac {SMAC}", python=smac_python),
        AX_BOTORCH: Method("Ax (BoTorch's qLogNEI)", "ax_side", f"ax-platform {AX}", python=ax_python),
        SKOPT: Method("scikit-optimize", "skopt_side", skopt),
    }
