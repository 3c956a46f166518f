"""Mutation testing: scripts/mutants [--sample 12] [--seed 0] [--jobs N] [--json FILE] [MODULE ...].

A mutant is killed when the fast tests nearest to its module fail or take too long.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.bench.common import harness
from tests.mutation import modules
from tests.mutation.operators import Mutant, mutants, shuffled
from tests.mutation.pool import FAST, NOTHING, End, Pool, Trial

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

EQUIVALENT = HERE / "equivalent.toml"
SHARE_OF_MODULE, SHARE_OF_ALL = (11, 12), 0.85  # what must be killed
PATIENCE, LEAST = 5, 20.0  # a mutant may take this many times as long as the module itself, and some seconds


@dataclass
class Outcome:
    """What became of a module's mutants."""

    module: str
    tests: tuple[Path, ...]
    drawn: list[Mutant] = field(default_factory=list)
    equivalent: int = 0
    survivors: list[Mutant] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.drawn)

    @property
    def killed(self) -> int:
        return self.total - len(self.survivors)

    @property
    def goal(self) -> int:
        return SHARE_OF_MODULE[0] * self.total // SHARE_OF_MODULE[1]

    @property
    def met(self) -> bool:
        return self.killed >= self.goal


def main(argv: Sequence[str] | None = None) -> int:
    """Run the mutants of the modules named, or of the core; 1 if too many survive."""
    arguments = _arguments(argv)
    names = arguments.module or modules.core(ROOT)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # one process a core
        os.environ[variable] = "1"
    found = {name: mutants(name, modules.path_of(ROOT, name).read_text(encoding="utf-8")) for name in names}
    reviewed = read_equivalent(EQUIVALENT, found)
    tests = {path: modules.imports(path) for path in fast_tests(ROOT)}
    imported = modules.imports_of_packages(ROOT)
    outcomes = [Outcome(name, tuple(modules.nearest_tests(name, imported, tests))) for name in names if found[name]]
    for outcome in outcomes:
        _draw(outcome, found[outcome.module], reviewed, arguments.seed, arguments.sample)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that all processes end
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        try:
            _try_all(Pool(Path(folder), arguments.jobs, ROOT), outcomes)
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
    print(table(outcomes))
    if arguments.json:
        text = json.dumps(to_json(outcomes), indent=1, ensure_ascii=False) + "\n"
        arguments.json.write_text(text, encoding="utf-8")
    return int(not (all(outcome.met for outcome in outcomes) and share(outcomes) >= SHARE_OF_ALL))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutants", allow_abbrev=False)
    parser.add_argument("module", nargs="*", metavar="MODULE", help="default: the core, see tests/mutation/modules.py")
    parser.add_argument("--sample", type=int, default=12, metavar="N", help="mutants of each module (default: 12)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="draws other ones (default: 0)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="at a time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    return parser.parse_args(argv)


def _draw(
    outcome: Outcome, found: Sequence[Mutant], reviewed: Collection[tuple[str, str, str]], seed: int, sample: int
) -> None:
    """Take a sample; what is known to be no fault is counted instead of taken."""
    for one in shuffled(found, seed):
        if len(outcome.drawn) == sample:
            return
        if one.key in reviewed:
            outcome.equivalent += 1
        else:
            outcome.drawn.append(one)


def _try_all(pool: Pool, outcomes: Sequence[Outcome]) -> None:
    """Run all mutants and note which survive."""
    limits = _limits(pool, outcomes)
    drawn = [(outcome, one) for outcome in outcomes for one in outcome.drawn]

    def tell(number: int, end: End) -> None:
        outcome, one = drawn[number]
        if end.told is None:
            outcome.survivors.append(one)
            print(_diff(one), file=sys.stderr, flush=True)

    print(f"{len(drawn)} mutants; those that survive:", file=sys.stderr, flush=True)
    pool.run([Trial(one.module, one.source, outcome.tests, limits[one.module]) for outcome, one in drawn], tell)


def _diff(mutant: Mutant) -> str:
    path = modules.path_of(ROOT, mutant.module).relative_to(ROOT)
    return f"\n{path}:{mutant.line}\n- {mutant.before}\n+ {mutant.after}"


def read_equivalent(path: Path, found: Mapping[str, Sequence[Mutant]]) -> set[tuple[str, str, str]]:
    """Read the mutants that a person has found to be no fault; one that is none any more must be taken out."""
    listed = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
    keys = {(each["module"], each["before"], each["after"]) for each in listed if each["reason"]}
    old = {key for key in keys if key[0] in found} - {one.key for group in found.values() for one in group}
    if old:
        raise SystemExit(f"{path.name} lists what is no mutant any more: {sorted(old)}")
    return keys


def fast_tests(root: Path) -> list[Path]:
    """Return the files in which pytest finds fast tests."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", FAST, "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return sorted({root / line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line})


def _limits(pool: Pool, outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Run all these tests with the modules as they are, which must pass; return how long mutants may take."""
    files = sorted({path for outcome in outcomes for path in outcome.tests})
    trials = [Trial(NOTHING, "", (path,)) for path in files]
    done = pool.run(trials)
    for number, path in enumerate(files):
        if done[number].told is not None:
            raise SystemExit(f"{done[number].told}\n{path} fails without any change")
    seconds = {path: done[number].seconds for number, path in enumerate(files)}
    return {one.module: max(LEAST, PATIENCE * sum(seconds[path] for path in one.tests)) for one in outcomes}


def share(outcomes: Iterable[Outcome]) -> float:
    """Return which share of all mutants was killed."""
    counted = [(outcome.killed, outcome.total) for outcome in outcomes]
    return sum(killed for killed, _ in counted) / max(sum(total for _, total in counted), 1)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return one line a module, then the survivors."""
    return "\n".join(_lines(outcomes))


def _lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield f"{'module':36} mutants  killed  survived  equivalent"
    for one in outcomes:
        few = "" if one.met else f"  fewer than {one.goal}"
        yield f"{one.module:36} {one.total:7} {one.killed:7} {len(one.survivors):9} {one.equivalent:11}{few}"
    total, killed = sum(one.total for one in outcomes), sum(one.killed for one in outcomes)
    yield f"{'all':36} {total:7} {killed:7} {total - killed:9}  {share(outcomes):.1%}, goal {SHARE_OF_ALL:.0%}"
    for one in outcomes:
        for mutant in one.survivors:
            yield _diff(mutant)


def to_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the form in which benchmarks keep their results: one row for all, and what each module has."""
    total = harness.Row("mutants killed", 100 * share(outcomes), None, "%", 100 * SHARE_OF_ALL, higher=True)
    more = {
        "modules": [
            {
                "module": one.module,
                "killed": one.killed,
                "total": one.total,
                "goal": one.goal,
                "met": one.met,
                "survivors": [f"{mutant.line}: {mutant.before} -> {mutant.after}" for mutant in one.survivors],
            }
            for one in outcomes
        ]
    }
    return {**harness.to_json("mutants", [total]), **more}


if __name__ == "__main__":
    sys.exit(main())
