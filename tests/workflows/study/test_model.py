"""A study as data: how many nodes and rounds a search has, and what holds where a study says nothing."""

from pathlib import Path

import pytest

from nnlib.contract import Metric, TrainSettings
from nnlib.shards.tree import RANKS
from regiondag.study.model import (
    GPU_COUNTS,
    MAX_TRIALS,
    TRAIN_SETTINGS,
    Config,
    Init,
    JobRequest,
    Limits,
    Region,
    Search,
)


def search(sizes, **more):
    return Search("bayes", (), sizes, **more)


def region(parts, **more):
    data = {part: Path(f"malta.{part}.nc") for part in parts}
    settings = TrainSettings()
    return Region("Malta", "malta", data, Path("network.json"), Metric(), settings, search((1,)), JobRequest(), **more)


def test_trainings_learn_from_the_whole_where_it_is_there():
    train, whole = Path("malta.train.nc"), Path("malta.all.nc")
    assert region(["train", "valid"]).learned_from == (train,)
    assert region(["train", "valid", "all"]).learned_from == (whole,)
    assert region(["train"], merged={"train": (whole, train)}).learned_from == (whole, train)
    assert region([]).learned_from == ()


def test_a_job_may_have_as_many_gpus_as_ranks_can_share():
    assert GPU_COUNTS == RANKS


def test_rounds_hold_their_trials_one_after_the_other():
    three = search((2, 3, 1))
    assert (three.trials, three.nodes) == (6, 6)
    assert [three.round_of(number) for number in range(6)] == [0, 0, 1, 1, 1, 2]
    for number in (6, 7, 100):
        with pytest.raises(ValueError, match="lies beyond the last of 6"):
            three.round_of(number)


@pytest.mark.parametrize(
    ("sizes", "nodes"),
    [
        ((4,) * 6, 24 + 4 * 2),  # a third of six trials a lane, in four lanes
        ((2,) * 7, 14 + 2 * 3),  # rounded up
        ((2,), 2 + 2),
        ((2, 1), 3 + 2),
        ((3, 2, 2), 7 + 3),
        ((1,) * 9, 9),  # a single lane can take from nobody
        ((50_000, 40_000), MAX_TRIALS),
    ],
)
def test_lanes_have_nodes_to_spare(sizes, nodes):
    assert search(sizes, schedule="lanes").nodes == nodes
    assert search(sizes).nodes == sum(sizes)


def test_searches_of_which_nothing_is_said_are_as_the_readme_has_them():
    plain = search((2,))
    assert (plain.schedule, plain.prune, plain.share, plain.winner) == ("rounds", "none", "off", "observed")
    assert (plain.acquisition, plain.give_up_after, plain.budget, plain.constraints) == ("improvement", 8, 0, ())


def test_jobs_of_which_nothing_is_said_are_as_the_readme_has_them():
    job = JobRequest()
    assert (job.gpus, job.cpus, job.retries, job.requirements) == (1, 2, 2, "TARGET.HAS_GPU =?= True")
    assert (job.memory, job.disk, job.memory_max) == (4 * 1024**3, 4 * 1024**3, None)
    seconds = [job.deadline, job.checkpoint, job.hold_limit, job.idle_limit]
    assert seconds == [2 * 60 * 60, 30 * 60, 60 * 60, 7 * 24 * 60 * 60]
    assert all(type(number) is int for number in seconds)  # they become part of ClassAds
    assert Limits() == Limits(0, 0, 0)


def test_a_training_starts_from_random_weights_unless_it_is_said():
    assert Init().random and not Init().source
    assert not any(Init(kind).random for kind in ("champion", "neighbour", "pooled"))
    plain = region(["train"])
    assert (plain.init, plain.update, dict(plain.merged)) == (Init(), None, {})


def test_the_winner_is_trained_on_all_but_the_test_part():
    assert region(["train", "valid", "final", "test"]).final_parts == ("final",)
    assert region(["train", "valid", "test"]).final_parts == ("train", "valid")
    pooled = region([], merged={"train": (Path("a.nc"),), "final": (Path("b.nc"),)})
    assert pooled.final_parts == ("train",)  # never the data by which others choose


def test_every_setting_of_a_training_may_be_a_hyperparameter():
    assert {"epochs", "learning_rate", "seed", "compat"} <= TRAIN_SETTINGS
    assert Config("s", Path("study.yaml"), (), Limits()).regions == ()
