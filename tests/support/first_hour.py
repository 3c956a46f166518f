"""What a person does first, from a machine as its installer left it to recommendations with names, step by step."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.checkout import copy_of_the_tree
from tests.support.fresh_machine import HOME, FreshMachine

COLUMNS = ("client", "product", "name", "store", "when")
WORDS = ("tea", "cup", "pot", "jam", "tray", "lamp", "clock", "bag", "card", "candle")


class StepError(Exception):
    """A step did not end as it should; the message has what it printed."""


@dataclass(frozen=True)
class Step:
    """One command of that person."""

    name: str
    command: str
    seconds: float
    output: str


def line_of(output: str) -> str:
    """Return the line that preflight and doctor print for what is missing."""
    lines = re.findall(r"^  ((?:sudo|su|apt-get|usermod) .*)$", output, re.MULTILINE)
    return str(lines[0])


def write_sales(path: Path, customers: int = 120) -> None:
    """Write a shop's table: two stores, half a year, customers who like one kind of things."""
    dice = random.Random(7)
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(COLUMNS) + "\n")
        for store in ("North", "South"):
            for number in range(customers):
                liked = dice.sample(range(len(WORDS)), 3)
                for _ in range(12):
                    kind = dice.choice(liked) if dice.random() < 0.8 else dice.randrange(len(WORDS))
                    item, day = dice.randrange(6), dice.randrange(168)
                    when = f"2026-{5 + day // 28:02}-{1 + day % 28:02}"
                    file.write(f"{store[0]}{number:03},P{kind}{item},{WORDS[kind]} {item},{store},{when}\n")


def make_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout."""
    source = copy_of_the_tree(folder / "source")  # setuptools writes into it
    argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)]
    subprocess.run(argv, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def walk(machine: FreshMachine, wheel: Path, table: Path, say: Callable[[str], object] = print) -> list[Step]:
    """Go from the line that preflight prints to a recommendation, as an ordinary user; return the steps."""
    machine.copy_in(wheel.parent / "source/scripts", f"{HOME}/scripts")  # what a clone has
    machine.copy_in(wheel, f"{HOME}/{wheel.name}")
    machine.copy_in(table, f"{HOME}/sales.csv")
    steps: list[Step] = []

    def do(name: str, command: str, code: int = 0) -> str:
        begun = time.perf_counter()
        done = machine.run(f"PATH=$HOME/env/bin:$PATH; {command}")
        steps.append(Step(name, command, time.perf_counter() - begun, done.stdout))
        say(f"[{steps[-1].seconds:5.1f} s] {name}: {command}")
        if done.returncode != code:
            raise StepError(f"{command} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    try:
        line = line_of(do("look what is missing", "scripts/preflight", 6))
        do("paste the line", line)
        do("install", f"python3 -m venv env && pip install --quiet ./{wheel.name}")
        do("look again", "regiondag doctor")
        columns = "--region store --customer client --item product --time when --description name"
        do("init", f"regiondag init --data sales.csv {columns} shop")
        do("run", "regiondag run shop")
        do("recommend", "regiondag recommend shop --region North --customer N001")
    finally:
        machine.run("env/bin/regiondag pool down --purge")
    return steps
