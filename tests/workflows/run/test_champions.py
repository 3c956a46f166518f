"""What an earlier run left in office."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nnlib.contract import MODEL_FILE, PROGRAM_FILE, PROGRAM_MODEL_FILE, Metric, Recipe, Status, TrainSettings
from regiondag.run.champions import Incumbent, recipe_of_champion, select_networks
from regiondag.run.history import History, Proposal, TrialOutcome
from regiondag.run.region_spec import RegionSpec
from regiondag.run.trial_recipes import incumbent_trial, name_trial
from regiondag.study.families import NETWORK, PROGRAM
from regiondag.study.model import Search
from regiondag.study.space import Real


def champion(folder, model, recipe=None):
    metrics = folder / f"{model}.json"
    metrics.write_text(json.dumps({"recipe": recipe}))
    return Incumbent(folder / model, metrics, "0")


def test_a_champion_without_a_recipe_is_a_network_or_what_a_program_made(tmp_path):
    of_network, of_program = champion(tmp_path, MODEL_FILE), champion(tmp_path, PROGRAM_MODEL_FILE)
    assert recipe_of_champion(of_network) == Recipe(NETWORK) and recipe_of_champion(of_program) == Recipe(PROGRAM)
    assert select_networks({"a": of_network, "b": of_program}) == {"a"}


@pytest.mark.parametrize(("kind", "again"), [(PROGRAM, 0), (NETWORK, None)])
def test_the_first_trial_is_what_serves_once_more_where_that_is_of_its_kind(kind, again):
    search = Search("bayes", (Real("rate", 0.1, 1.0),), (2,))
    spec = RegionSpec("shop", "North", "north", Metric("auc"), TrainSettings(), search, (), {PROGRAM_FILE: "0"})
    spec = replace(spec, first=({"rate": 0.5},), incumbent=Recipe(kind))
    history = History({0: Proposal(0, {"rate": 0.5})}, {0: TrialOutcome(0, Status.OK, value=0.9)})
    assert incumbent_trial(spec, history) == again
    assert name_trial(spec, history, 0) == "program, rate 0.5 (trial 0)"
