"""Reads `trainer`: a program of the user's that trains in nnlib's place, its files, and what it is judged by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnlib.contract import Metric, Terms
from nnlib.spec.checks import Check
from nnlib.worker.program_archive import PLACEHOLDER
from regiondag.errors import ConfigError
from regiondag.study.program import TOLD, TRAINER, Program
from regiondag.study.space import Space
from regiondag.trainers.container import CONTAINER, IN_CONTAINER, NONE, read_container
from regiondag.trainers.environment_key import ENVIRONMENT, KEY, read_environment
from regiondag.trainers.program_check import check_space
from regiondag.trainers.program_files import UNSAYABLE, can_be_said, find_downloads, find_files
from regiondag.trainers.urls import UrlForm, read_form
from regiondag.util.schema import (
    OR_NEVER,
    REGIONAL,
    TEXT,
    Key,
    Keys,
    Layer,
    Problems,
    Section,
    choice,
    object_of,
    section_of,
    word_or,
)
from regiondag.util.yaml_file import Document

LONGEST_PATTERN = 200
_NAME = r"[A-Za-z_][A-Za-z0-9_.@/-]{0,63}"
OURS = ("network", "metric", "minimize", "init", "neighbour", "pooled", "data")
INSTEAD = {
    "metric": "trainer.metric says it",
    "minimize": "trainer.metric says it, with mode: min",
    "data": "trainer.files says what a job gets",
}
NOT_OURS = "is for models that nnlib makes"


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) and word for word in value):
        raise ValueError
    for word in value:
        if not can_be_said(word):
            raise ValueError(UNSAYABLE)
        plain = PLACEHOLDER.sub("", word)
        if plain.strip("{}") != plain:
            raise ValueError(f"{word!r}: a brace by itself is written twice: {{{{")
    return tuple(value)


def _retry(value: Any) -> tuple[int | str, ...]:
    if not isinstance(value, list) or not all(type(one) in (int, str) and one not in ("", 0) for one in value):
        raise ValueError
    return tuple(value)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(_NAME, value) or value == "stderr":
        raise ValueError
    return value


def _files(value: Any) -> tuple[str | UrlForm, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(read_form(one) if isinstance(one, dict) else _words([one])[0] for one in value)


_URL = object_of({name: Key("", TEXT, "") for name in ("url", "sha256", "name")}, ["url", "sha256"])


def _pattern(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_PATTERN or not can_be_said(value):
        raise ValueError
    if (
        value.startswith(("/", "~"))
        or set(value) & set("?[]\\")
        or {"..", "**", ""} & set(value.rstrip("/").split("/"))
    ):
        raise ValueError
    return value


_PATTERN = "a path in the program's folder, in which * stands for any part of a name"
_LIST = {"type": "array", "items": TEXT.schema}
WHERE: Keys = {
    kind: Key("", Check(_pattern, _PATTERN, TEXT.schema), about)
    for kind, about in (
        ("csv", "Files with a line of names and lines of figures, such as lightning_logs/*/metrics.csv."),
        ("mlflow", "Folders of MLflow's file store, such as mlruns."),
        ("tensorboard", "Folders with event files, also in folders below, such as runs."),
    )
}
METRIC: Keys = {
    "name": Key(
        "", Check(_name, "a name such as auc", {"type": "string", "pattern": f"^{_NAME}$"}), "What the program reports."
    ),
    "mode": Key("max", choice(("max", "min")), "Whether more of it is better, or less."),
    "value": Key("last", choice(("last", "best")), "Which of a trial's values counts."),
    "report": Key(
        None,
        section_of(object_of(WHERE, [])),
        "Files in which the program writes it, one of "
        f"{', '.join(WHERE)}: from the program's folder on, * is any part of a name.",
    ),
}
PROGRAM: Keys = {
    "command": Key(
        (),
        Check(_words, "a list of words such as [python, train.py, --lr, '{learning_rate}']", {**_LIST, "minItems": 1}),
        "The program and its arguments, in which {NAME} stands for a hyperparameter or one of "
        f"{', '.join(TOLD)}; `python` is the one that runs jobs on the worker.",
    ),
    "files": Key(
        (),
        Check(
            _files,
            "a list of paths such as [train.py, lib/], and of {url: ..., sha256: ...}",
            {"type": "array", "items": {"anyOf": [TEXT.schema, _URL]}},
        ),
        "Files and folders that go with the job, from study.yaml's folder, and files that it gets from URLs; "
        "{region} stands for the region's name.",
    ),
    "metric": Key(None, section_of(object_of(METRIC, ["name"])), "What trials are judged by."),
    "seconds": Key(
        0, OR_NEVER, "A training that has run for so long is told to end, and counts as it is then; 0: no limit."
    ),
    ENVIRONMENT: KEY,
    "retry": Key(
        (),
        Check(
            _retry,
            "a list of exit codes and texts such as [137, CUDA out of memory]",
            {"type": "array", "items": {"anyOf": [{"type": "integer"}, TEXT.schema]}},
        ),
        "Exit codes, and texts among the last 20 lines of output, that are the machine's fault: tried again elsewhere.",
    ),
    CONTAINER: Key(
        None,
        word_or([NONE], object_of(IN_CONTAINER, ["image"])),
        "An image in which Apptainer runs the program; what runs its job is outside.",
    ),
}


def read_program(section: Section, folder: Path, region: str) -> tuple[Program, Metric]:
    """Read the program of a region whose `section` has one, and what it is judged by; paths begin at `folder`."""
    below = section.section(TRAINER)
    command, files, retry, seconds = (below.value(name, PROGRAM) for name in ("command", "files", "retry", "seconds"))
    if not command:
        below.problems.add(below.where("command"), f"missing, legal: {PROGRAM['command'].check.legal}")
    environment = read_environment(below, folder)
    metric = below.section("metric")
    name, mode, value = (metric.value(key, METRIC) for key in ("name", "mode", "value"))
    kind, path = _read_where(metric)
    if not name:
        metric.problems.add(metric.where("name"), "missing, legal: the name of what the program reports, such as auc")
    metric.finish()
    container = read_container(below, folder)
    below.finish()
    found = tuple(find_files(below, tuple(one for one in files if isinstance(one, str)), folder, region))
    forms = [one for one in files if isinstance(one, UrlForm)]
    downloads = tuple(find_downloads(below, forms, folder, region, {name for name, _ in found}))
    terms = Terms(kind, path, value == "best", seconds)
    return Program(command, found, retry, downloads, container, terms, environment), Metric(name, mode == "min")


def _read_where(metric: Section) -> tuple[str, str]:
    """Read in which files a metric is: their kind, and where they lie; nothing where the program reports it."""
    if "report" not in metric:
        return "", ""
    below = metric.section("report")
    found = [(kind, path) for kind in WHERE if (path := below.value(kind, WHERE))]
    below.finish()
    if len(found) != 1:
        seen = " and ".join(kind for kind, _ in found) or "none"
        metric.problems.add(metric.where("report"), f"seen {seen}, legal: one of {', '.join(WHERE)}")
    return found[0] if found else ("", "")


def read_command(
    folder: Path, command: Sequence[str], files: Sequence[str], metric: Metric, space: Space, environment: str = ""
) -> Program:
    """Return the program that stands on a command line, read as that of a study; ConfigError with every mistake."""
    mode = "min" if metric.minimize else "max"
    said = {"command": list(command), "files": list(files), "metric": {"name": metric.name, "mode": mode}}
    said |= {ENVIRONMENT: environment} if environment else {}
    problems = Problems(Document("command line", {TRAINER: said}, {}))
    section = Section(problems, [Layer({TRAINER: said}, ())])
    program, _ = read_program(section, folder, "region")
    check_space(section, program, space)
    if problems.found:
        raise ConfigError(problems.texts())
    return program


def refuse_others(section: Section) -> None:
    """What says how nnlib trains says nothing to a program.

    What the study says may be for other regions, where a region alone has a program.
    """
    for key in OURS:
        if section.contradicts(key, TRAINER):
            section.problems.add(
                section.where(key), f"{INSTEAD.get(key, NOT_OURS)}; beside `trainer` it is not legal, remove it"
            )
    search = section.section("search")
    if "families" in section:  # no study has both
        section.problems.add(section.where("families"), f"{NOT_OURS}; beside `trainer` it is not legal, remove it")
    if search.raw("scope") == "all":
        text = "a program is run for one region; beside `trainer` it is not legal, remove it"
        search.problems.add(search.where("scope"), text)
    train, alone = section.section("train"), section.where(TRAINER)[0] in REGIONAL
    for layer in train.layers:
        for key in () if alone and layer.path[0] not in REGIONAL else layer.value:
            if key not in ("epochs", "seed"):
                train.problems.add(
                    (*layer.path, key), f"{NOT_OURS}; a program is told `epochs` and `seed`, others by search.space"
                )
