"""Which submit files are tried out, without a pool."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from regiondag.condor import classads, client, matching, preflight
from regiondag.condor.classads import parse_ad
from regiondag.condor.preflight import check_run, distinct_submit_files
from regiondag.pool.pool import Pool
from regiondag.run.layout import RunFolder

V100 = 'GPUs_DeviceName = "V100"\n'
OF_FOUR = "".join(f'GPUs_GPU_{n} = [ Id = "GPU-{n}"; Capability = 7.0 ]\n' for n in "abcd")


def slot(gpus: int, more: str = V100, free: str = "") -> Any:
    """Return the ad of a machine with four GPUs at most, of which `free` are not taken."""
    ids = [f"GPU-{n}" for n in "abcd"[:gpus]]
    text = (
        f'Requirements = true\nName = "slot1@big"\nTotalSlotGPUs = {gpus}\nGPUs = {len(free)}\n{OF_FOUR}{more}'
        f'HAS_GPU = true\nAssignedGPUs = "{",".join(ids)}"\n'
        f"AvailableGPUs = {{ {', '.join(f'GPUs_GPU_{n}' for n in free)} }}\n"
    )
    return parse_ad(text)


def job(gpus: str = "4", require: str = "", more: str = "") -> Any:
    """Return the ad of a job that asks for GPUs, as condor_submit makes it."""
    clause = "countMatches(MY.RequireGPUs, TARGET.AvailableGPUs)" if require else "TARGET.GPUs"
    needed = f"RequireGPUs = {require}\n" if require else ""
    text = f"RequestGPUs = {gpus}\n{needed}Requirements = ({clause} >= RequestGPUs){more}\n"
    return parse_ad(text)


@pytest.fixture
def findings(monkeypatch, tmp_path):
    """Return what a job finds in a pool, without one."""

    def find(slots: list[Any], ad: Any) -> list[preflight.Finding]:
        monkeypatch.setattr(preflight, "check_dag", lambda *_: [])
        monkeypatch.setattr(client, "_query_slots", lambda pool: slots)
        monkeypatch.setattr(preflight, "distinct_submit_files", lambda *_: {tmp_path / "final.sub": ["berg"]})
        monkeypatch.setattr(preflight, "dry_run", lambda *_: (ad, ""))
        return list(check_run(Pool("p", "installed", (25, 14, 1)), RunFolder(tmp_path), ["berg"]))

    return find


def test_what_machines_have_is_said(findings):
    pool, of_job = findings([slot(2), slot(4)], job("4"))
    assert pool.text == "2 slots, 2 of them with GPUs, at most 4 on one machine (V100)"
    others = "slot1@big; not slot1@big: it does not meet TARGET.GPUs >= RequestGPUs"
    assert (of_job.good, of_job.text) == (True, f"matches 1 of 2 slots: {others}; {preflight.UNKNOWN_LINK}")
    assert findings([slot(2)], job("1"))[1].text == "matches 1 of 1 slots"
    assert findings([], job())[0].text == "0 slots, 0 of them with GPUs"


def test_what_keeps_jobs_from_other_machines_is_said(findings):
    """Those with the same reasons are told together, the most first; which GPU lacks what, with what it has."""
    said = findings(
        [slot(1, free=""), *(slot(n, free="") for n in (4, 4, 0, 2)), slot(4, 'GPUs_DeviceName = "V100"\nColor = 1\n')],
        job("2", "Capability >= 7.0 && Memory >= 9", " && (TARGET.Color =?= 1)"),
    )[1]
    assert not said.good and said.text == (
        "no slot meets countMatches(MY.RequireGPUs,TARGET.AvailableGPUs) >= RequestGPUs: Memory >= 9 of each GPU (?: "
        "no Memory); a GPU (it has none)"
    )
    ads = [slot(1, free=""), slot(0, free=""), slot(4, free=""), *(slot(4, f"{V100}Color = 1\n") for _ in range(2))]
    said = findings(ads, job("2", "Capability >= 7.0", " && (TARGET.Color =?= 1)"))[1]
    assert said.good and said.text == (
        "matches 2 of 5 slots: slot1@big, slot1@big; not slot1@big: it does not meet countMatches(MY.RequireGPUs,"
        "TARGET.AvailableGPUs) >= RequestGPUs, TARGET.Color is 1; not slot1@big: it does not meet a GPU (it has none), "
        f"TARGET.Color is 1; not slot1@big: it does not meet TARGET.Color is 1; {preflight.UNKNOWN_LINK}"
    )
    busy = parse_ad('Requirements = false\nName = "shy"\nColor = 1\nGPUs = 2\n')
    many = [*(parse_ad(f'Requirements = true\nName = "c{n}"\nColor = {n}\nGPUs = 1\n') for n in (1, 2, 2, 2, 2)), busy]
    assert findings(many, job("1", more=" && (TARGET.Color =?= 1)"))[1].text == (
        "matches 1 of 6 slots: c1; not c2, c2, c2 and 1 more: they do not meet TARGET.Color is 1; not shy: the START "
        "expression there refuses the job"
    )


def test_what_each_gpu_lacks_is_said(findings):
    asked = 'Capability >= 8.0 && MaxSupportedVersion >= 12040 && regexp("V", DeviceName)'
    named = OF_FOUR.replace("Capability = 7.0", 'Capability = 7.0; DeviceName = "V100"')
    ad = parse_ad(f'Requirements = true\nName = "old"\nTotalSlotGPUs = 2\n{named}AssignedGPUs = "GPU-a,GPU-b"\n'
                  "AvailableGPUs = { GPUs_GPU_a, GPUs_GPU_b }\n")  # fmt: skip
    assert findings([ad], job("1", asked))[1].text == (
        "no slot meets countMatches(MY.RequireGPUs,TARGET.AvailableGPUs) >= RequestGPUs: Capability >= 8.0 of each GPU "
        "(V100: Capability 7.0) and MaxSupportedVersion >= 12040 of each GPU (V100: no MaxSupportedVersion)"
    )


@pytest.mark.parametrize("odd", ["undefined", "error", "7", '"GPU-a"', "{ nothing, 7, undefined }", "{}"])
def test_a_machine_with_an_odd_list_of_gpus_has_none(findings, odd):
    ad = parse_ad(f'Requirements = true\nName = "odd"\nAvailableGPUs = {odd}\n')
    assert findings([ad], job("1", "Capability >= 8.0"))[1].text.endswith(": a GPU (it has none)")
    ad = parse_ad('Requirements = true\nName = "odd"\nAvailableGPUs = { { }, [Capability = error] }\n')
    assert findings([ad], job("1", "Capability >= 8.0"))[1].text.endswith("of each GPU (?: Capability error)")


def test_no_machine_has_so_many(findings):
    _, of_job = findings([slot(2)], job("4"))
    assert not of_job.good
    assert of_job.text.endswith("it needs 4 GPUs, the most on one machine are 2: give job.gpus fewer, or min and max")


def test_gpus_of_several_kinds(findings):
    pool, of_job = findings([slot(4, more="")], job("2", more=" && (TARGET.GPUs_DeviceName =!= undefined)"))
    assert pool.text.endswith("at most 4 on one machine (of several kinds)")
    assert not of_job.good and "name one with job.require_gpus: DeviceName ==" in of_job.text


def test_a_busy_machine_is_looked_at_as_if_it_were_free(findings):
    """A job that requires something of each GPU is matched with the list of those that are free."""
    good = job("4", "Capability >= 7.0")
    assert findings([slot(4, free="")], good)[1].good and findings([slot(4, free="ab")], good)[1].good
    assert not findings([slot(4)], job("4", "Capability >= 8.0"))[1].good
    assert not findings([slot(2)], good)[1].good


@pytest.mark.parametrize("require", ["", "Capability >= 7.0"])
def test_as_many_gpus_as_there_are(require):
    from regiondag.generate.render import _request_gpus
    from regiondag.study.model import JobRequest

    text = _request_gpus(JobRequest(gpus=8, fewest_gpus=2, require_gpus=require)).replace("$(gpus)", "8")
    ad = job(text, require)
    for free, count in {"abcd": 4, "abc": 2, "ab": 2, "a": 2, "": 2}.items():
        offered = slot(4, free=free)
        assert ad.lookup("RequestGPUs").eval(ad, offered) == count, free
        assert bool(matching.match(ad, [offered]).matching) == (len(free) >= 2)
    assert classads.number_of(ad, "RequestGPUs") == 2  # in the queue
    once = job(text.replace("min({ 8", "min({ 2"), require)  # after a fault
    assert once.lookup("RequestGPUs").eval(once, slot(4, free="abcd")) == 2


def test_one_file_of_each_kind_is_tried_and_regions_without_trials_have_none(tmp_path):
    run = RunFolder(tmp_path)
    for slug, names in {"a": ("final.sub",), "b": ("final.sub",), "pooled": ("train.sub", "final.sub")}.items():
        folder = run.region(slug).path
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_text(f"executable = x\ninitialdir = {folder}\nbatch_name = {slug}\nqueue\n")
    found = distinct_submit_files(run, ["a", "b", "pooled"])
    assert {file.relative_to(tmp_path / "regions").as_posix(): slugs for file, slugs in found.items()} == {
        "a/final.sub": ["a", "b", "pooled"],
        "pooled/train.sub": ["pooled"],
    }


def test_regions_whose_jobs_say_different_things_are_tried_apart(tmp_path):
    """A machine may look at any attribute of a job; those of the graph differ in names alone."""
    run = RunFolder(tmp_path)
    for slug, project in {"a": "x", "b": "y", "c": "x"}.items():
        folder = run.region(slug).path
        folder.mkdir(parents=True)
        (folder / "final.sub").write_text(f'MY.RegiondagRegion = "{slug}"\nMY.ProjectName = "{project}"\nqueue\n')
    assert list(distinct_submit_files(run, ["a", "b", "c"]).values()) == [["a", "c"], ["b"]]


def test_commands_that_htcondor_takes_no_notice_of_are_told(monkeypatch, tmp_path):
    said = "WARNING: the line 'acounting = a = b' was unused by condor_submit. Is it a typo?\n"
    said += (
        "WARNING: the line 'retry_request_memory = 1' was unused by condor_submit. Is it a typo?\n"  # the graph's own
    )
    done = subprocess.CompletedProcess([], 0, "Requirements = true\n", said)
    monkeypatch.setattr(Pool, "run", lambda *_, **__: done)
    (tmp_path / "train.sub").write_text("queue\n")
    ad, problem = preflight.dry_run(Pool("p", "installed", (25, 14, 1)), tmp_path / "train.sub")
    assert ad is not None
    assert problem == "HTCondor 25.14.1 knows no acounting: correct the name in job.submit, or take it out"


def test_urls_stay_among_a_jobs_inputs():
    submit = "a = b\ntransfer_input_files = trial.json,/run/a.zip,https://host/a.csv,s3://b/c\nx = https://no\n"
    assert preflight.find_urls(submit) == ["https://host/a.csv", "s3://b/c"] and preflight.find_urls("queue") == []


def test_where_programs_in_images_can_run_is_said(findings):
    ad = parse_ad("Requirements = (true) && (TARGET.HasSingularity =?= true)\n")
    with_it = slot(1, 'HasSingularity = true\nName = "slot1@with"\n')
    [_, of_job] = findings([slot(1), with_it], ad)
    assert (
        of_job.good
        and "matches 1 of 2 slots: slot1@with; not slot1@big: it does not meet TARGET.HasSing" in of_job.text
    )
    [_, of_job] = findings([slot(1)], ad)
    assert not of_job.good and of_job.text.endswith(f"; {preflight.INSTALL_APPTAINER}")


def test_regions_whose_urls_alone_differ_are_of_one_kind():
    """Two hundred regions are not two hundred dry runs."""
    north, south = (f"transfer_input_files = a,/r/regions/{n}/b,https://host/{n}.csv,s3://x/y\n" for n in "ns")
    assert preflight.without_names(north, "n") == preflight.without_names(south, "s")
    assert preflight.without_names(north.replace("s3", "osdf"), "n") != preflight.without_names(south, "s")


def test_what_slots_call_themselves_is_bounded_and_printable(findings):
    evil = parse_ad('Requirements = true\nName = "' + "\x1b[2J" + "x" * 999 + '"\nGPUs = real("INF")\n')
    for finding in findings([evil], job("1")):
        assert finding.text.isprintable() and len(finding.text) < 500
