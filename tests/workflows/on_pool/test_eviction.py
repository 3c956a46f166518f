"""Jobs that lose their machine, on a real HTCondor pool: they go on where they were, to the same bits."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from nnlib.contract import Result
from regiondag.condor import client
from regiondag.condor.events.dag_log import read_dag_log
from regiondag.pool.pool import Pool, pool_folder
from regiondag.run.layout import NodeName, RunFolder
from tests.workflows.conftest import STUDY
from tests.workflows.on_pool.test_study import finish, generate, result_of, submit, wait

pytestmark = pytest.mark.condor

EPOCHS = 60
TRIAL, FINAL = NodeName("germany", 0), NodeName("germany", None)
TEXT = (
    STUDY.replace("  - {name: United Kingdom, data: data/uk.nc}\n", "")
    .replace("rounds: 2\n  parallel: 2", "rounds: 1\n  parallel: 1")
    .replace("metric: ndcg@5", "minimize: loss")
    .replace("epochs: 2, batch: 4", f"epochs: {EPOCHS}, batch: 4, stop_after: 0")
    .replace("{real: [1e-3, 1e-1], log: true}", "0.001")
)
SLOWLY = (
    "import sys, time; sys.path.insert(0, sys.argv[1]); from nnlib import cli; "
    "from nnlib.cpu.engine import CpuEngine; run = CpuEngine.run; "
    "CpuEngine.run = lambda *words: (time.sleep(0.2), run(*words))[1]; sys.exit(cli.main(sys.argv[2:]))"
)


def train_slowly(run: RunFolder) -> None:
    """Let every batch take a while, so that there is a training to disturb."""
    script = run.path / "train.sh"
    text = script.read_text()
    assert 'exec "$python" "$1"' in text
    script.write_text(text.replace('exec "$python" "$1"', f'exec "$python" -c \'{SLOWLY}\' "$1"'))


def job_of(pool: Pool, run: RunFolder, node: NodeName) -> client.QueuedJob | None:
    dag = read_dag_log(run.study_dag.with_name("study.dag.dagman.log"))
    jobs = client.query_jobs(pool, dag.cluster) if dag else []
    return next((job for job in jobs if job.node == str(node)), None)


def epochs_in_sandbox(pool: Pool) -> int:
    """Return how many epochs the job on the machine has logged; the tests run one at a time."""
    execute = pool_folder(pool.name) / "var/lib/condor/execute"  # read from outside: this is asked twice a second
    assert execute.is_dir()
    found = ["find", execute, "-name", "log.jsonl", "-exec", "cat", "{}", "+"]
    return subprocess.run(found, capture_output=True, check=False).stdout.count(b"\n")  # sandboxes come and go


def evict(pool: Pool, run: RunFolder, node: NodeName, epochs: int, *options: str) -> None:
    """Have a node's job leave its machine once it has trained so many epochs."""

    def there(_status) -> bool:
        job = job_of(pool, run, node)
        return job is not None and job.status == "running" and epochs_in_sandbox(pool) >= epochs

    wait(pool, run, there, f"{epochs} epochs of {node}")
    before = evictions(run, node)
    pool.run(["condor_vacate_job", *options, job_of(pool, run, node).job], check=True, capture_output=True)
    wait(pool, run, lambda _: evictions(run, node) > before, f"{node} to leave its machine")


def evictions(run: RunFolder, node: NodeName) -> int:
    """Return how often a job's event log says that it left its machine."""
    return len(re.findall(r"^004 ", (place(run, node) / "job.log").read_text(), re.MULTILINE))


def place(run: RunFolder, node: NodeName) -> Path:
    return run.region(node.slug).trial(node)


def undisturbed(folder: Path, pool: Pool, capsys) -> RunFolder:
    run = generate(folder, capsys, TEXT)
    submit(run)
    assert finish(pool, run).exit_code == 0
    return run


def assert_the_same(one: RunFolder, other: RunFolder, node: NodeName) -> Result:
    expected, result = result_of(place(one, node)), result_of(place(other, node))
    assert (result.value, result.curve, result.metrics) == (expected.value, expected.curve, expected.metrics)
    assert (result.epochs, result.best_epoch) == (expected.epochs, expected.best_epoch)
    if node.number is None:
        assert (place(one, node) / "model.nc").read_bytes() == (place(other, node) / "model.nc").read_bytes()
    return result


def times_trained(run: RunFolder, node: NodeName) -> Counter[int]:
    text = (place(run, node) / "job.err").read_text()
    return Counter(int(number) for number in re.findall(r"^epoch (\d+)/\d+ loss", text, re.MULTILINE))


def resumed(run: RunFolder, node: NodeName) -> int:
    return (place(run, node) / "job.err").read_text().count("resumed from checkpoint.nc")


def test_evicted_jobs_go_on_where_they_were_to_the_same_bits(pool, run_area, capsys):
    calm = undisturbed(run_area / "calm", pool, capsys)
    run = generate(run_area / "evicted", capsys, TEXT)
    train_slowly(run)
    submit(run)
    for node in (TRIAL, FINAL):
        for epochs in (5, 10, 15):  # the final trains 27, two batches each: seconds are left to look in time
            evict(pool, run, node, epochs)
    assert finish(pool, run).exit_code == 0
    for node in (TRIAL, FINAL):
        result = assert_the_same(calm, run, node)
        assert resumed(run, node) == 3
        assert times_trained(run, node) == Counter(range(1, result.epochs + 1))  # each of them once
        assert result.seconds > 0.2 * 2 * result.epochs  # those of all machines
        assert not (place(run, node) / "checkpoint.nc").exists()  # nobody goes on from there


def test_a_job_that_loses_its_machine_at_once_goes_on_from_its_last_checkpoint(pool, run_area, capsys):
    calm = undisturbed(run_area / "calm", pool, capsys)
    run = generate(run_area / "evicted", capsys, TEXT.replace("cpus: 1,", "cpus: 1, checkpoint: 3s,"))
    train_slowly(run)
    submit(run)
    for epochs in (20, 40):
        evict(pool, run, TRIAL, epochs, "-fast")
    evict(pool, run, FINAL, 12, "-fast")  # of 27
    assert finish(pool, run).exit_code == 0
    for node, times in ((TRIAL, 2), (FINAL, 1)):
        result = assert_the_same(calm, run, node)
        again = times_trained(run, node) - Counter(range(1, result.epochs + 1))
        # 3 s of 0.4 s each, and a while between the look into the sandbox and the end there
        assert sum(again.values()) <= times * 15 and max(again, default=60) > 4, again


def test_what_was_saved_before_a_fault_of_the_machine_is_not_trained_again(pool, run_area, capsys):
    """DAGMan's next try is a new job; it gets the checkpoint that the last one brought back."""
    calm = undisturbed(run_area / "calm", pool, capsys)
    run = generate(run_area / "fault", capsys, TEXT)
    train_slowly(run)
    script = run.path / "train.sh"
    # The first try is stopped as by a machine that goes down without telling HTCondor, then says it was its fault.
    fault = f'if [ ! -e {run_area}/failed ]; then : >{run_area}/failed; timeout 8 "$python" -c \'{SLOWLY}\' "$1" train '
    fault += '--trial trial.json --device "$2"; echo "left with $?" >&2; exit 75; fi\n'
    script.write_text(script.read_text().replace("# HTCondor signals", fault + "# HTCondor signals"))
    submit(run)
    assert finish(pool, run).exit_code == 0
    result = assert_the_same(calm, run, TRIAL)
    assert resumed(run, TRIAL) == 1 and 5 < min(times_trained(run, TRIAL)) < 60
    journal = [json.loads(line) for line in run.region("germany").journal.read_text().splitlines()]
    [attempt] = [record for record in journal if record["event"] == "attempt"]
    assert attempt["seconds"] > 5 and result.epochs == EPOCHS
