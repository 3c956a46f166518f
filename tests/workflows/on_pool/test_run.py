"""`regiondag run` on a real HTCondor pool: to the champions, and taken up again after whatever ended it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from regiondag.cli import main
from regiondag.errors import PoolError
from regiondag.monitor.status import read_status
from regiondag.pool import lifecycle
from regiondag.pool.pool import NAME_VARIABLE, find_pool, read_state
from regiondag.run.champions import earlier_runs
from regiondag.run.journal import Journal
from regiondag.run.layout import RunFolder
from tests.workflows.conftest import STUDY, write_region, write_study
from tests.workflows.on_pool.test_study import settled_lines, wait
from tests.workflows.shop import POOLED, write_shop
from tests.workflows.shop import STUDY as SHOP

pytestmark = pytest.mark.condor

PATIENCE = 240.0  # seconds for what takes about 40
SMALL = SHOP.replace("rounds: 2, parallel: 4", "rounds: 1, parallel: 4")
TWO = {"Avon": 60, "Berg": 40}


def small_shop(folder: Path, text: str = SMALL) -> Path:
    return write_shop(folder / "shop", text, regions=TWO).parent


def runs_of(shop: Path, name: str = "shop") -> list[RunFolder]:
    return earlier_runs(shop / "runs", name)


def start(*words: str, code: str = "") -> subprocess.Popen[str]:
    """Start a call of its own; `code` is run in it first."""
    call = f"import sys\n{code}\nfrom regiondag.cli import main\nsys.exit(main(sys.argv[1:]))\n"
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", call, "run", *words], stdout=pipe, stderr=pipe, text=True)


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def wait_for_line(process: subprocess.Popen[str], pattern: str) -> str:
    """Read what a process says until a line of it is found."""
    assert process.stderr is not None
    read = ""
    while not re.search(pattern, read):
        line = process.stderr.readline()
        assert line, f"it ended: {read}"
        read += line
    return read


def test_a_study_to_its_champions_and_nothing_new_and_new_data(pool, run_area, capfd):
    study = write_study(run_area / "tiny", STUDY.replace("rounds: 2", "rounds: 1"))
    assert main(["run", str(study.parent)]) == 0
    out, err = capfd.readouterr()
    [run] = runs_of(study.parent, "tiny")
    for step in (
        "data: 2 regions; 4 trials",
        r"run: \S*run-tiny-\S+",
        "doctor: would run on the pool .*",
        r"submit: run-tiny-\S+ is job \d+",
        "watch: Ctrl-C leaves it running",
        r"watch: run-tiny-\S+ ended with exit code 0 after .*",
        "report: 2 of 2 regions have their champion",
    ):
        assert re.search(f"^==> {step}$", err, re.MULTILINE), (step, err)
    assert re.search(r"^\d\d:\d\d:\d\d tiny: 2/2 champions, 4/4 trials$", err, re.MULTILINE)
    assert "Germany" in out and f"Models: {run.path}" in out and "==>" not in out

    assert main(["run", str(study), "--json", "--quiet"]) == 0
    out, err = capfd.readouterr()
    said = json.loads(out)
    assert said["run"] == str(run.path) and said["end"] == "served" and said["exit_code"] == 0
    assert [row["status"] for row in said["summary"]["regions"]] == ["promoted", "promoted"] and "==>" not in err

    write_region(study.parent / "data", "germany", users=10)
    assert main(["run", str(study), "--detach"]) == 0
    out, err = capfd.readouterr()
    second, first = runs_of(study.parent, "tiny")
    assert first == run and json.loads(second.manifest.read_text())["regions"] == {"germany": "Germany"}
    assert f"{run.path.name} is of before: new data or network: Germany" in err
    assert "The run goes on by itself" in err and "condor_rm" in err and out == ""
    assert main(["run", str(study), "--new"]) == 1
    assert "is still in progress" in capfd.readouterr().err
    assert main(["run", str(study)]) == 0
    assert len(runs_of(study.parent, "tiny")) == 2
    assert main(["run", str(study), "--quiet"]) == 0  # the region that the last run left out has its champion, too
    assert len(runs_of(study.parent, "tiny")) == 2


KILL = """
import os, signal
from regiondag.generate import write_run
from regiondag.pipeline import run_study

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def dies(self, step):
    if {at!r} == f"before {{step}}":
        die()
    if {at!r} == f"in {{step}}":
        write_run._write_json = die
    do(self, step)
    if {at!r} == f"after {{step}}":
        die()

do = run_study._Conductor.do
run_study._Conductor.do = dies
if {at!r} == "before report":
    run_study._Conductor.report = die
"""
POINTS = (
    *("before data", "after data", "before run", "in run", "after run", "before doctor", "after doctor"),
    *("before submit", "after submit", "before watch", "after watch", "before report"),
)


def test_killed_before_and_after_every_step_the_next_call_goes_on(pool, run_area):
    shop = small_shop(run_area)
    seen = []
    for at in POINTS:
        code, _, err = end(start(str(shop), code=KILL.format(at=at)))
        seen.append((at, code, len(runs_of(shop)), err))
        if at in ("after watch", "before report"):  # it had ended before, or was watched to its end
            assert code in (0, -signal.SIGKILL), seen[-1]
        else:
            assert code == -signal.SIGKILL, seen[-1]
    assert [count for at, _, count, _ in seen if at == "in run"] == [0]
    code, out, err = end(start(str(shop)))
    assert code == 0 and "nothing new since" in err and "Avon" in out, err
    [run] = runs_of(shop)
    lines = settled_lines(run)
    assert len(lines) == len(set(lines))
    dagman = (run.path / "study.dag.dagman.log").read_text()
    assert dagman.count("Job submitted from host") == 1


def test_ctrl_c_while_watching_leaves_the_run_alone(pool, run_area):
    shop = small_shop(run_area)
    process = start(str(shop))
    wait_for_line(process, "==> watch: Ctrl-C")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    code, out, err = end(process)
    [run] = runs_of(shop)
    assert code == 130 and out == "" and "Traceback" not in err
    assert "The run goes on by itself. To see it again" in err and f"regiondag run {shop}" in err
    assert re.search(r"regiondag pool exec -- condor_rm \d+\n", err)
    code, out, err = end(start(str(shop)))
    assert code == 0 and runs_of(shop) == [run] and "==> submit" not in err and "Avon" in out


def test_a_run_that_was_removed_goes_on_with_what_is_done(pool, run_area):
    shop = small_shop(run_area, SHOP)
    assert end(start(str(shop), "--detach"))[0] == 0
    [run] = runs_of(shop)
    wait(pool, run, lambda status: any(region.done >= 2 for region in status.regions), "two trials")
    process = start(str(shop), "--interval", "0.5")
    wait_for_line(process, "==> watch: Ctrl-C")
    pool.run(["condor_rm", "-all"], cwd=run.path, capture_output=True)
    code, _, err = end(process)
    assert code == 1 and "was removed from the queue" in err
    journal = run.region(POOLED).journal
    before = Journal(journal).read().settled
    code, _, err = end(start(str(shop)))
    assert code == 0 and runs_of(shop) == [run] and "again; what is done stays" in err
    after = Journal(journal).read().settled
    kept = {trial: one for trial, one in before.items() if one.ok}
    assert len(kept) >= 2 and kept == {trial: after[trial] for trial in kept}


def test_a_region_that_fails_is_told_with_its_reason_and_tried_again(pool, run_area, capfd):
    text = STUDY.replace("rounds: 2", "rounds: 1").replace("epochs: 2", "optimizer: sgd, epochs: 4")
    bad = "search: {space: {hidden: {int: [2, 8]}, learning_rate: {real: [1e5, 1e6], log: true}}}"
    study = write_study(run_area / "tiny", text.replace("data: data/germany.nc", f"data: data/germany.nc, {bad}"))
    for again in (False, True):
        assert main(["run", str(study)]) == 1
        out, err = capfd.readouterr()
        assert re.search("^Germany: .*diverged", out, re.MULTILINE) and "1 of 2 regions have their champion" in err
        assert ("without champions: Germany" in err) == again and ("what is done stays" in err) == again
    assert len(runs_of(study.parent, "tiny")) == 1


def test_a_study_that_would_not_run_here_is_told_and_made_anew_once_it_is_mended(pool, run_area, capfd):
    shop = small_shop(run_area, SMALL.replace("memory: 256MB", "memory: 900TB"))
    assert main(["run", str(shop)]) == 6
    assert "BAD " in capfd.readouterr().err
    (shop / "study.yaml").write_text(SMALL)
    assert main(["run", str(shop), "--detach"]) == 0
    assert "is of before: study.yaml says something else than then" in capfd.readouterr().err
    new, _ = runs_of(shop)
    pool.run(["condor_rm", "-all"], cwd=new.path, capture_output=True)
    wait(pool, new, lambda status: status.over, "the removal")


@contextmanager
def no_pool(name: str) -> Iterator[str]:
    """Let commands mean a pool that is not there, and remove it at the end if it is then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(NAME_VARIABLE, name)
        try:
            yield name
        finally:
            try:
                lifecycle.down(name, print, purge=True)
            except PoolError:
                pass


def test_without_a_pool_one_is_made_and_after_a_reboot_it_is_started_again(run_area):
    shop = small_shop(run_area, SHOP)
    with no_pool(f"pytest-run-{os.getpid()}") as name:
        code, _, err = end(start(str(shop), "--detach"))
        assert code == 0 and f"==> pool: '{name}' is up; it stays so" in err, err  # no job asks for a GPU
        [run], pool = runs_of(shop), find_pool()
        assert pool is not None
        wait(pool, run, lambda status: any(region.done for region in status.regions), "a trial")
        before = Journal(run.region(POOLED).journal).read().settled
        state = read_state(name)
        assert state is not None
        state.processes[0].send(signal.SIGKILL)  # and with it all that runs in the pool, a job most likely
        assert state.processes[0].wait_gone(20)
        code, out, err = end(start(str(shop)))
        assert code == 0 and f"==> pool: '{name}' is up" in err and "had died" in err, err
        assert runs_of(shop) == [run] and "Avon" in out
        after = Journal(run.region(POOLED).journal).read()
        assert after.final is not None and before == {trial: after.settled[trial] for trial in before}
        assert read_status(run, find_pool()).exit_code == 0
