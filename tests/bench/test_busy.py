"""How the benchmark of short trials shares out the time of slots."""

import pytest

from regiondag.run.layout import RunFolder
from scripts.bench.manager.busy import leave_out_finals, spent
from scripts.bench.manager.pools import Times


def test_idle_slots_are_htcondors_while_a_job_waits_and_the_managers_while_none_does():
    jobs = [
        Times(submitted=0.0, executing=1.0, ended=2.0),
        Times(submitted=1.5, executing=2.5, ended=3.5),  # waits beside the first one, on a free slot, then on two
        Times(submitted=4.0, executing=4.0, ended=5.0),
    ]
    found = spent(jobs, slots=2, seconds=4.0)
    assert found.queued * 3 == pytest.approx(0.5 + 0.5)
    assert found.starved * 3 == pytest.approx(8.0 - 3.0 - 1.0)
    assert found.beyond == pytest.approx(2 * 4.0 / 3 - 1.0)
    assert found.busy == pytest.approx(100 * 3 / 8)


def test_final_trainings_are_left_out_with_their_edges(tmp_path):
    run = RunFolder(tmp_path)
    (tmp_path / "regions" / "north").mkdir(parents=True)
    run.study_dag.write_text("JOB north_t0000 a.sub\nJOB north_final b.sub\nPARENT north_t0000 CHILD north_final\n")
    leave_out_finals(run)
    assert run.study_dag.read_text() == "JOB north_t0000 a.sub\n"
