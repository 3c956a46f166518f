"""Checks a program's command and seconds against the hyperparameters and the job of study.yaml."""

from __future__ import annotations

from nnlib.worker.program_archive import placeholders_of
from regiondag.study.families import FAMILY
from regiondag.study.program import TOLD, TRAINER, Program
from regiondag.study.space import Choice, Space
from regiondag.trainers.program_files import UNSAYABLE, can_be_said
from regiondag.util import schema
from regiondag.util.schema import DURATION, Section


def check_space(section: Section, program: Program, space: Space) -> None:
    """What stands in braces must have a value in every trial, and hyperparameters have names and values to be told."""
    _check_names(section.section("search").section("space"), space)
    below = section.section(TRAINER)
    sure = {one.name for one in space if not one.when or one.default is not None}
    told = [name for name in TOLD if name != "seconds" or program.terms.seconds]
    for name in dict.fromkeys(name for word in program.command for name in placeholders_of(word)):
        if name in sure or name in told:
            continue
        legal = [*sorted(sure), *told]
        known = any(one.name == name for one in space)
        text = "has no value where its `when` does not hold; give it a default" if known else "is no hyperparameter"
        hint = "" if known else schema.nearest(name, legal)
        below.problems.add(below.where("command"), f"{{{name}}} {text}{hint}; legal: {', '.join(legal)}")


def check_seconds(section: Section, program: Program, deadline: int) -> None:
    """A training has to end before its job is removed."""
    seconds = program.terms.seconds
    if seconds >= deadline:
        below = section.section(TRAINER)
        below.problems.add(
            below.where("seconds"),
            f"seen {DURATION.write(seconds)}: job.deadline ({DURATION.write(deadline)}) removes the job before; legal: "
            "less, or a later deadline",
        )


def _check_names(below: Section, space: Space) -> None:
    for one in space:
        if one.name in (*TOLD, FAMILY) and one.name != "epochs":
            text = "that name says something else of a trial; beside `trainer`, choose another one"
            below.problems.add(below.where(one.name), f"{one.name}: {text}")
        values = [*(one.options if isinstance(one, Choice) else ()), one.default]
        for value in values:
            if isinstance(value, str) and not can_be_said(value):
                below.problems.add(below.where(one.name), f"seen {value!r}: {UNSAYABLE}, which no command can be told")
