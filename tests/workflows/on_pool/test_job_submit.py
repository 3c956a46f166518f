"""Submit commands of a study's own on a real pool: jobs have them, and none gets round the graph's."""

from __future__ import annotations

import pytest

from regiondag.cli import main
from regiondag.condor.events.dag_log import read_dag_log
from regiondag.condor.preflight import dry_run
from regiondag.study.submit_commands import why_reserved
from tests.workflows.conftest import STUDY
from tests.workflows.on_pool.test_study import finish, generate, submit

pytestmark = pytest.mark.condor

SUBMIT = """\
  submit:
    "+ProjectName": 'Bird "1" \\ ; queue 3'
    accounting_group: physics.it
    "+WantGlideIn": true
    "+Priority2": {expression: 'JobPrio + 1'}
    priority: 7
"""
TEXT = (
    STUDY.replace("  - {name: United Kingdom, data: data/uk.nc}\n", "")
    .replace("rounds: 2\n  parallel: 2", "rounds: 1\n  parallel: 1")
    .replace("job: {cpus: 1, memory: 256MB, disk: 100MB}", f"job:\n  cpus: 1\n  memory: 256MB\n  disk: 100MB\n{SUBMIT}")
    + 'final: {submit: {"my.projectname": Last}}\n'
)
FREE = {"JobPrio", "Environment", "NiceUser"}  # of what condor_submit writes by itself


def test_jobs_have_what_the_study_adds(pool, run_area, capsys):
    run = generate(run_area, capsys, TEXT)
    assert main(["doctor", str(run.path)]) == 0, capsys.readouterr().out
    submit(run)
    assert finish(pool, run).exit_code == 0
    dag = read_dag_log(run.path / "study.dag.dagman.log").cluster
    asked = ["DAGNodeName", "ProjectName", "AcctGroup", "WantGlideIn", "Priority2", "JobPrio", "RegiondagRegion"]
    words = ["-constraint", f"DAGManJobId == {dag}", *(word for name in asked for word in ("-af:r", name))]
    shown = pool.run(["condor_history", *words, "-limit", "9"], capture_output=True).stdout
    rest = '"physics.it" true JobPrio + 1 7 "Germany"'
    assert sorted(shown.splitlines()) == [
        f'"germany_final" "Last" {rest}',
        rf'"germany_t0000" "Bird \"1\" \ ; queue 3" {rest}',
    ]


def test_no_attribute_of_a_job_can_be_given_but_those_that_change_nothing(pool, run_area, capsys):
    """Whatever this HTCondor writes into the ad of such a job: a new release's attributes are to be looked at."""
    run = generate(run_area, capsys, TEXT)
    ad, problem = dry_run(pool, run.region("germany").path / "train.sub")
    assert ad is not None and not problem
    given = {"ProjectName", "AcctGroup", "AcctGroupUser", "AccountingGroup", "WantGlideIn", "Priority2"}
    assert {name for name in ad if not why_reserved(f"MY.{name}")} <= FREE | given


def test_a_command_that_htcondor_does_not_know_is_told(pool, run_area, capsys):
    run = generate(run_area, capsys, TEXT.replace("accounting_group:", "acounting_group:"))
    assert main(["doctor", str(run.path)]) == 6
    assert "knows no acounting_group: correct the name in job.submit" in " ".join(capsys.readouterr().out.split())


def test_an_expression_that_is_none_is_told(pool, run_area, capsys):
    run = generate(run_area, capsys, TEXT.replace("'JobPrio + 1'", "'((('"))
    assert main(["doctor", str(run.path)]) == 6
    assert "Priority2" in capsys.readouterr().out
