"""Nothing that a worker leaves harms the access point: each behaviour is settled by the real POST of a run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from regiondag.cli import main
from regiondag.node.post import JobEnd, settle_final, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RegionFolder, RunFolder
from tests.workflows.conftest import write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.node.hostile_worker import BEHAVIOURS, LATE, SECRET, Behaviour
from tests.workflows.played import bring_models, play_job

pytestmark = pytest.mark.slow

GOOD = JobEnd(0, 1, 2, job="12.0")
SECONDS, MEMORY = 20, 1 << 20  # of a processor, and KB of addresses, that POST may take: with more it fails
PATIENCE = 200  # seconds on a busy machine; who waits for ever waits longer
# What POST of a trial writes besides the trial's own folder.
WRITTEN = ("trials.jsonl", "trials.lock", "manager.log", "machines.json", "machines.lock")
READERS = (("status",), ("verify",), ("stats",), ("report",), ("report", "--json"), ("explain",))
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Ended:
    """What POST did."""

    code: int
    said: str


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a run whose second trial, and one whose final training, is about to be settled."""
    made = {}
    for final in (False, True):
        place = tmp_path_factory.mktemp("hostile")
        run = create(write_study(place), place / "runs")
        folder = run.region("germany")
        for number in range(4 if final else 1):
            node = NodeName("germany", number)
            prepare_trial(folder, node)
            play_job(folder, node, 0.3 + number / 100)
            settle_trial(folder, node, GOOD)
        node = NodeName("germany", None if final else 1)
        (prepare_final if final else prepare_trial)(folder, node)
        play_job(folder, node, 0.4, curve=(0.2, 0.4), epochs=2)
        if final:
            bring_models(folder, node)
        made[final] = run
    return made


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda one: one.name)
def test_what_a_worker_leaves_harms_nothing(runs, tmp_path, capsys, behaviour):
    if behaviour.name == "a file that may not be read" and os.geteuid() == 0:
        pytest.skip("root may read everything")
    run = RunFolder(tmp_path / runs[behaviour.final].path.name)
    shutil.copytree(runs[behaviour.final].path, run.path, symlinks=True)
    (tmp_path / "secret").write_text(SECRET)
    folder, node = run.region("germany"), NodeName("germany", None if behaviour.final else 1)
    behaviour.leave(folder.trial(node))
    before = snapshot(tmp_path, folder.trial(node))
    ended = post(run, node, behaviour)
    assert ended.code == (75 if behaviour.status == "machine" else 0), ended.said
    assert not re.search(r"Traceback|a bug", ended.said)
    changed = {name for name, state in snapshot(tmp_path, folder.trial(node)).items() if before.get(name) != state}
    assert all(Path(name).name in WRITTEN for name in changed), changed
    see(run, node, behaviour)
    look(run, node, capsys)
    assert (tmp_path / "secret").read_text() == SECRET
    if behaviour.status == "machine":
        go_on(run, node)
    assert not any(SECRET in path.read_text(errors="ignore") for path in run.path.rglob("*.json*") if path.is_file())


@pytest.mark.parametrize("late", LATE, ids=lambda one: one.name)
def test_a_result_that_comes_late_or_again_changes_nothing(runs, tmp_path, capsys, late):
    run = RunFolder(tmp_path / runs[late.final].path.name)
    shutil.copytree(runs[late.final].path, run.path, symlinks=True)
    folder, node = run.region("germany"), NodeName("germany", None if late.final else 1)
    honest = (folder.trial(node) / "result.json").read_bytes()
    late.first(folder.trial(node))
    assert post(run, node, late, late.job).code == 0
    before = settled_in(folder)
    (folder.trial(node) / "result.json").write_bytes(honest)
    late.leave(folder.trial(node))
    ended = post(run, node, replace(late, exit_code=0), "12.0")
    assert ended.code == 0, ended
    assert re.search(late.says, ended.said), ended.said
    assert settled_in(folder)[: len(before)] == before
    assert len(settled_in(folder)) == len(before) + late.counts
    see(run, node, late)
    look(run, node, capsys)


@pytest.mark.parametrize("job", ["11.0", "12.0"], ids=["of one job", "of two"])
def test_a_result_that_two_scripts_settle_at_once_counts_once(runs, tmp_path, job):
    run = RunFolder(tmp_path / runs[False].path.name)
    shutil.copytree(runs[False].path, run.path, symlinks=True)
    node = NodeName("germany", 1)
    both = [subprocess.Popen(post_words(run, node, 0, of)) for of in ("11.0", job)]
    assert [one.wait(PATIENCE) for one in both] == [0, 0]
    events = [json.loads(line) for line in run.region("germany").journal.read_text().splitlines()]
    assert [one["event"] for one in events if one.get("trial") == 1].count("settled") == 1


def settled_in(folder: RegionFolder) -> list[str]:
    return [line for line in folder.journal.read_text().splitlines() if json.loads(line)["event"] == "settled"]


def post_words(run: RunFolder, node: NodeName, exit_code: int, job: str) -> list[str]:
    (archive,) = (path.name for path in run.path.glob("*.pyz") if not path.name.startswith("nnlib-"))
    words = [sys.executable, archive, str(node), str(exit_code), "0", "2", "0", job]
    return ["sh", "-c", f'ulimit -v {MEMORY}; ulimit -t {SECONDS}; exec "$0" "$@"', str(run.path / "post.sh"), *words]


def post(run: RunFolder, node: NodeName, behaviour: Behaviour, job: str = "11.0") -> Ended:
    """Run POST as DAGMan does, and watch what it takes."""
    log = run.path / "manager.log"
    told = log.stat().st_size if log.exists() else 0
    limited = post_words(run, node, behaviour.exit_code, job)
    try:
        code = subprocess.run(limited, check=False, timeout=PATIENCE).returncode
    except subprocess.TimeoutExpired:
        code = -9
    with log.open("rb") as file:
        file.seek(told)
        said = file.read().decode()
    return Ended(code, said)


def see(run: RunFolder, node: NodeName, behaviour: Behaviour) -> None:
    """The journal says in a sentence what was seen."""
    history = Journal(run.region("germany").journal).read()
    if behaviour.status == "machine":
        assert history.last_outcome(node.number) is None
        (fault,) = history.faults_of(node.number)
        reason = fault.reason
    else:
        settled = history.last_outcome(node.number)
        assert settled.status == behaviour.status
        reason = settled.reason
    assert re.search(behaviour.sees, reason), reason
    assert reason.isprintable() and len(reason) < 5000


def look(run: RunFolder, node: NodeName, capsys: pytest.CaptureFixture[str]) -> None:
    """All that reads a run works, and steers no terminal and no browser."""
    for words in (*READERS, ("explain", str(node))):
        code = main([words[0], str(run.path), *words[1:]])
        said = "".join(capsys.readouterr())
        assert code in (0, 1), (words, said)
        assert not STEERS.search(said), (words, STEERS.findall(said))
        assert SECRET not in said
    page = (run.path / "report/index.html").read_text()
    assert "<script>alert" not in page and "<svg onload" not in page


def go_on(run: RunFolder, node: NodeName) -> None:
    """The node's next try, on a machine that does as it is told, ends well."""
    folder = run.region("germany")
    prepare, settle = (prepare_final, settle_final) if node.number is None else (prepare_trial, settle_trial)
    assert prepare(folder, node)
    assert (folder.trial(node) / "start").is_dir() and not (folder.trial(node) / "start").is_symlink()
    play_job(folder, node, 0.4, curve=(0.2, 0.4), epochs=2)
    assert settle(folder, node, GOOD).ok
    assert [json.loads(line)["event"] for line in folder.journal.read_text().splitlines()].count("attempt") == 1


def snapshot(path: Path, without: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for place, folders, files in os.walk(path):
        if Path(place) == without:
            folders.clear()
            continue
        for name in (*folders, *files):
            status = (Path(place) / name).lstat()
            times = 0 if name in folders else status.st_mtime_ns
            found[str((Path(place) / name).relative_to(path))] = status.st_mode, status.st_size * bool(times), times
    return found


def test_there_are_many():
    assert len(BEHAVIOURS) >= 90
    assert len({one.name for one in BEHAVIOURS}) == len(BEHAVIOURS)
