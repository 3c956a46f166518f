"""What `--json` prints, from the dataclasses that are printed."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from typing import Any

from docs._generate.comments import comments_of
from docs._generate.markdown import code, docstring, escape, table
from regiondag.accounting.stats import RunStats
from regiondag.audit.verify import Verified
from regiondag.condor.pool_check import PoolCheck
from regiondag.fleet.status import FleetStatus
from regiondag.monitor.explain_queue import Explanation
from regiondag.monitor.status import RunStatus
from regiondag.newstudy.describe import TableFacts
from regiondag.pipeline.run_study import Outcome
from regiondag.pool.status import PoolStatus
from regiondag.recommend.answers_file import AnswerFacts
from regiondag.recommend.jobs import BatchStatus
from regiondag.registry.describe import ServedRegion, VersionFacts, VersionsCompared
from regiondag.report.summary import Summary
from regiondag.trials.rows import TrialRow
from regiondag.trials.what_matters import RegionImportance
from regiondag.trials.why import Why
from regiondag.update.old_runs import CleanPlan

# What each prints: an object of that class.
OUTPUTS: dict[str, type] = {
    "regiondag init": TableFacts,
    "regiondag run": Outcome,
    "regiondag status": RunStatus,
    "regiondag report": Summary,
    "regiondag recommend": AnswerFacts,
    "regiondag recommend --all": BatchStatus,
    "regiondag explain": Explanation,
    "regiondag stats": RunStats,
    "regiondag study show": TrialRow,
    "regiondag study show --why": Why,
    "regiondag study importance": RegionImportance,
    "regiondag verify": Verified,
    "regiondag clean": CleanPlan,
    "regiondag champions list": ServedRegion,
    "regiondag champions show": VersionFacts,
    "regiondag champions diff": VersionsCompared,
    "regiondag pool status": PoolStatus,
    "regiondag pool check": PoolCheck,
    "regiondag fleet status": FleetStatus,
}
# Where it is not just that object.
AROUND = {
    "regiondag init": "With `--data`; one object, in place of the path of study.yaml.",
    "regiondag champions list": "`study`, `registry` (its folder), and `regions`: a list of such objects.",
    "regiondag recommend": "`study`, `k`, and `answers`: a list of such objects.",
    "regiondag recommend --all": "What is there of the newest batch.",
    "regiondag explain": "A list of such objects.",
    "regiondag study show": "`study`, `run`, and `trials`: a list of such objects, each with `queued`: where its job "
    "is, an object or null.",
    "regiondag study show --why": "A list of such objects.",
    "regiondag study importance": "A list of such objects; `dependence` of one region alone.",
    "regiondag report": "Also `finished`, whether every region has its champion. The same stands in "
    "`report/summary.json`. A `confusion` has no `examples` there.",
}


def render_json_output() -> str:
    """Return a section for each command that takes `--json`, with the keys of all objects in it."""
    parts = []
    for command, owner in OUTPUTS.items():
        parts += [f"## {code(f'{command} --json')}", AROUND.get(command, "One object.")]
        for depth, one in enumerate(_classes(owner, set())):
            parts += [] if depth == 0 else [f"### {code(one.__name__)} of {code(command)}"]
            parts += [escape(docstring(one).split("\n\n")[0]), table(("key", "type", "meaning"), _rows(one))]
    return "\n\n".join(parts)


def _rows(owner: Any) -> list[tuple[str, str, str]]:
    comments = comments_of(owner)
    return [(code(f.name), code(f.type), escape(comments.get(f.name, ""))) for f in dataclasses.fields(owner)]


def _classes(owner: Any, seen: set[type]) -> Iterator[Any]:
    """Yield a dataclass and those that its fields hold, each once."""
    seen.add(owner)
    yield owner
    for hint in typing.get_type_hints(owner).values():
        for one in _dataclasses_in(hint):
            if one not in seen:
                yield from _classes(one, seen)


def _dataclasses_in(hint: Any) -> Iterator[type]:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        yield hint
    elif isinstance(hint, types.UnionType) or typing.get_args(hint):
        for part in typing.get_args(hint):
            yield from _dataclasses_in(part)
