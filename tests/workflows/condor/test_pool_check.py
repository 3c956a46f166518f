"""What is said of a study's jobs in a pool that is not ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from regiondag.condor import client, preflight
from regiondag.condor.access_point import AccessPoint, SubmitRule
from regiondag.condor.classads import parse_ad
from regiondag.condor.pool_check import PoolCheck, advise, check_jobs
from regiondag.condor.survey import GpuKind
from regiondag.config.load import load_config
from regiondag.generate.render import submit_texts
from tests.workflows.condor.test_survey import ACCESS, POOL, look, slot

JOB = "RequestCpus = 2\nRequestMemory = 512\nRequestDisk = 1024\n"
A100 = GpuKind("A100", 4, 1, "8.0", 40536, "12.4", False)


def job(more: str = "", requirements: str = "true") -> Any:
    return parse_ad(f"{JOB}{more}Requirements = {requirements}\n")


@pytest.fixture
def said(monkeypatch):
    """Return what is said of a job, `at_once` of them, in a pool of one slot."""

    def say(
        ad: Any, access: AccessPoint = ACCESS, at_once: int = 1, problem: str = "", text: str = "..."
    ) -> dict[str, list[str]]:
        slots = [slot("w1", system="AlmaLinux9")]
        monkeypatch.setattr(client, "query_slots", lambda pool: slots)
        monkeypatch.setattr(client, "query_daemons", lambda *_: [parse_ad("Requirements = true\n")])
        monkeypatch.setattr(preflight, "dry_run_text", lambda *_: (ad, problem))
        found = list(check_jobs(POOL, look(*slots), access, {"train.sub": text}, at_once))
        good = PoolCheck(look(*slots), access, tuple(found)).good
        assert good == all(finding.state != "BAD" for finding in found)
        return {f"{one.state} {one.subject}": one.text for one in found}

    return say


def test_a_job_that_matches_and_pythons_that_are_too_old(said):
    found = said(job())
    assert found["ok train.sub"] == "matches 1 of 1 slots"
    assert "is older than 3.11" in found["note Python"]
    assert "send one, job: {python: bundle}" in found["note Python"]
    assert found["note Python"].endswith("job: {requirements: 'TARGET.OpSysAndVer =!= \"AlmaLinux9\"'}")


def test_jobs_that_bring_their_python_need_none(said):
    assert "note Python" not in said(job(), text="transfer_input_files = /run/python.bundle")


def test_what_an_access_point_would_refuse_or_warn_of(said):
    rules = (
        SubmitRule("P", "!isUndefined(ProjectName)", '"which project?"', False),
        SubmitRule("W", "false", "", True),
    )
    found = said(job(), replace(ACCESS, rules=rules))
    assert (
        found["BAD train.sub"]
        == "the access point would refuse it (P): which project?; job.submit adds what is missing"
    )
    assert found["note train.sub"].startswith("the access point warns of it (W): it does not meet false")
    assert "BAD train.sub" not in said(job('ProjectName = "x"\n'), replace(ACCESS, rules=rules))


def test_more_jobs_than_the_pool_takes_of_one_user(said):
    found = said(job(), replace(ACCESS, limits={"MAX_JOBS_PER_OWNER": "9"}), at_once=10)
    assert found["BAD limits"] == "10 jobs may wait at once, MAX_JOBS_PER_OWNER = 9: write limits: {jobs: 8}"


def test_a_submit_file_that_is_none(said):
    assert said(None, problem="no such command")["BAD train.sub"] == "no such command"


def test_what_to_write_for_a_job_that_matches_nothing(said):
    large = job("RequestGPUs = 1\n", "TARGET.HAS_GPU =?= True && TARGET.Memory >= 99999999")
    assert "no machine has a GPU: write job: {gpus: 0}" in said(large)["BAD train.sub"]
    with_gpus = replace(look(slot()), gpus=(A100,))
    assert list(advise(large, with_gpus)) == [
        'only regiondag\'s own workers say HAS_GPU of themselves: write job: {requirements: "true"}'
    ]
    assert list(advise(large, replace(with_gpus, has_gpu=1))) == []
    greedy = parse_ad("Requirements = true\nRequestCpus = 64\nRequestMemory = 99999\nRequestDisk = 999999999\n")
    assert [text.rpartition("job: ")[2] for text in advise(greedy, look(slot()))] == [
        "{cpus: 8}",
        "{memory: 16384MB}",
        "{disk: 102400MB}",
    ]


def test_submit_files_of_a_study_that_is_not_generated(tmp_path):
    (tmp_path / "study.yaml").write_text(
        "regions: [{name: A}, {name: B}, {name: C, job: {cpus: 3}}]\n"
        "trainer: {command: [python, x.py, '{a}'], metric: {name: auc}}\n"
        "search: {rounds: 1, parallel: 4, space: {a: {real: [0, 1]}}}\njob: {gpus: 0}\nlimits: {jobs_per_region: 3}\n"
    )
    config = load_config(tmp_path / "study.yaml")
    texts = submit_texts(config, (23, 9, 6))
    assert [*texts] == ["train.sub of a, b", "final.sub of a, b", "train.sub of c", "final.sub of c"]
    assert "request_cpus = 3" in texts["train.sub of c"]
    assert config.most_jobs == 9 and replace(config, limits=replace(config.limits, jobs=5)).most_jobs == 5
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]
