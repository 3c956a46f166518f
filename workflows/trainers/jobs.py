"""Trials as jobs of whoever trains them: what PRE writes into trial.json, and what POST reads there of a champion.

It travels with DAGMan's scripts, so that it imports no more than they may. The rest of a trainer, which is asked while
a study is read and a run is made, is in `trainers.trainer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from nnlib.contract import CONTAINER_FILE, ENVIRONMENT_FILE, INIT_FILE, PROGRAM_FILE, Role, Trial
from regiondag.run.history import History
from regiondag.run.layout import NETWORK_FILE, NodeName, data_file
from regiondag.run.region_spec import RegionSpec
from regiondag.run.trial_recipes import FLOOR, recipe_of_trial
from regiondag.study.families import FAMILY, network_space
from regiondag.study.model import ALL, TRAIN_SETTINGS
from regiondag.study.program import program_trial
from regiondag.study.space import Value, with_defaults
from regiondag.study.trainer import NETWORKS, PROGRAMS

OF_PROGRAMS = (PROGRAM_FILE, CONTAINER_FILE, ENVIRONMENT_FILE)  # what their jobs are sent, as far as it is there


class Jobs(Protocol):
    """How a trainer's jobs are described."""

    def trial(self, spec: RegionSpec, node: NodeName, history: History, number: int) -> Trial:
        """Return the job of the trial `number`."""

    def final(self, spec: RegionSpec, node: NodeName, history: History, winner: int) -> Trial:
        """Return the job that tests what the trial `winner` has found, and makes what serves."""

    def settings(self, train: Mapping[str, Value]) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
        """Return of a job's settings those that may be hyperparameters, and those that count."""


def jobs_of(spec: RegionSpec) -> Jobs:
    """Return the jobs of who trains a region."""
    return _JOBS[spec.kind]


class _OfNetworks:
    """nnlib's: networks and other families, from the region's data."""

    def trial(self, spec: RegionSpec, node: NodeName, history: History, number: int) -> Trial:
        trial = self._make(spec, node, Role.TUNE, history, number, ["train"])
        return replace(
            trial,
            valid_file=data_file("valid"),
            compare={} if spec.floor is None else {FLOOR: spec.floor},
            sha256={**trial.sha256, **_digests(spec, ["valid"])},
        )

    def final(self, spec: RegionSpec, node: NodeName, history: History, winner: int) -> Trial:
        learned = [part for part in spec.final_parts if part != ALL]
        trial = self._make(spec, node, Role.FINAL, history, winner, learned)
        whole = [part for part in spec.final_parts if part == ALL] or (learned if trial.recipe else [])
        return replace(
            trial,
            train=replace(trial.train, epochs=max(history.settled[winner].best_epoch, 1), stop_after=0),
            test_file=data_file("test"),
            all_files=tuple(map(data_file, whole)),
            sha256={**trial.sha256, **_digests(spec, ["test", *whole])},
        )

    def settings(self, train: Mapping[str, Value]) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
        return train, train

    def _make(
        self, spec: RegionSpec, node: NodeName, role: Role, history: History, number: int, parts: Iterable[str]
    ) -> Trial:
        recipe = recipe_of_trial(spec, history, number)
        point: Mapping[str, Value] = {} if recipe else history.proposals[number].point
        point = {name: value for name, value in point.items() if name != FAMILY}
        network = {} if recipe else {NETWORK_FILE: spec.sha256[NETWORK_FILE]}
        settings = {name: value for name, value in point.items() if name in TRAIN_SETTINGS}
        init = {} if spec.init.random else {INIT_FILE: spec.sha256[INIT_FILE]}
        placeholders = {} if recipe else with_defaults(network_space(spec.search.space), point)
        others = {name: value for name, value in placeholders.items() if name not in TRAIN_SETTINGS}
        return Trial(
            node=str(node),
            region=spec.name,
            number=-1 if node.number is None else node.number,
            role=role,
            network="" if recipe else NETWORK_FILE,
            recipe=recipe,
            hyperparameters=others,
            train=replace(spec.train, **settings),  # type: ignore[arg-type]  # checked when study.yaml was read
            metric=spec.metric,
            train_files=tuple(map(data_file, parts)),
            init=None if spec.init.random else INIT_FILE,
            several=recipe is None and ((role is Role.FINAL and spec.final) or spec.job).gpus > 1,
            sha256={**network, **_digests(spec, parts), **init},
        )


class _OfPrograms:
    """Those of a program of the user's, which knows its data, and its test; all hyperparameters are its own."""

    def trial(self, spec: RegionSpec, node: NodeName, history: History, number: int) -> Trial:
        return self._make(spec, node, Role.TUNE, history, number)

    def final(self, spec: RegionSpec, node: NodeName, history: History, winner: int) -> Trial:
        trial = self._make(spec, node, Role.FINAL, history, winner)
        epochs = history.settled[winner].best_epoch or trial.train.epochs
        return replace(trial, train=replace(trial.train, epochs=epochs))

    def settings(self, train: Mapping[str, Value]) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
        return {}, {name: train[name] for name in ("epochs", "seed")}

    def _make(self, spec: RegionSpec, node: NodeName, role: Role, history: History, number: int) -> Trial:
        return program_trial(
            str(node),
            spec.name,
            -1 if node.number is None else node.number,
            role,
            space=spec.search.space,
            point=history.proposals[number].point,
            train=spec.train,
            metric=spec.metric,
            sha256={name: spec.sha256[name] for name in OF_PROGRAMS if name in spec.sha256},
        )


_JOBS: Mapping[object, Jobs] = {NETWORKS: _OfNetworks(), PROGRAMS: _OfPrograms()}


def _digests(spec: RegionSpec, parts: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 that the data files of some parts must have."""
    return {file: spec.sha256[file] for file in map(data_file, parts)}
