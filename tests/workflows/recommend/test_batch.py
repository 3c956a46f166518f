"""Batches: chunks, what counts as there, the manifest that comes last; here and by the scripts of a DAG."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnlib.contract import sha256_of
from regiondag.cli import main
from regiondag.errors import RegiondagError
from regiondag.generate.bundle import pack_recommend
from regiondag.recommend import here, node
from regiondag.recommend.ask import Wish
from regiondag.recommend.batch import BatchFolder, BatchPlan, PartError, RegionBatch, list_batches, plan_of
from regiondag.recommend.here import write_here
from regiondag.recommend.jobs import read_status, write_dag
from regiondag.recommend.make import begin_batch, choose_chunk
from regiondag.recommend.region import Served
from regiondag.run.layout import REPORT_NODE, SETTLED_BEFORE
from regiondag.run.region_spec import spec_to_json
from regiondag.study.job_rules import requires_glibc
from regiondag.study.model import JobRequest
from tests.workflows.recommend.made_up import LATER, NIGHT, REGIONS, place_run, place_study
from tests.workflows.registry.registered import spec_of

K = 4


@pytest.fixture
def study(tmp_path):
    return place_study(tmp_path)


def begin(study, chunk=25, **wish):
    served = Served(study / "runs", "shop")
    return begin_batch(study, served, list(served.regions), Wish(K, **wish), chunk)


def rows_of(batch):
    sql = "SELECT region, customer, rank, item, score, answered_by FROM read_parquet(?) ORDER BY region, customer, rank"
    return duckdb.connect().execute(sql, [str(batch.path / "*" / "*.parquet")]).fetchall()


def command(study, *words):
    return main(["recommend", str(study), "--all", "-k", str(K), "--chunk", "25", *words])


def test_every_customer_is_in_one_chunk():
    region = RegionBatch("a", "A", "v", "m", "d", 60, 24, 25, True)
    assert [(one.first, one.last, one.name) for one in region.chunks()] == [
        (0, 24, "part-0000"), (25, 49, "part-0001"), (50, 59, "part-0002"),
    ]  # fmt: skip
    assert sum(one.customers for one in region.chunks()) == 60
    assert choose_chunk(1) > choose_chunk(20_000) > choose_chunk(10**9) == 1000


def test_a_batch_here_has_what_a_recommender_says(study, capsys):
    assert command(study) == 0
    assert capsys.readouterr().out.endswith(": whole, 5 files of 100 customers\n")
    [batch] = list_batches(study)
    facts = json.loads(batch.manifest.read_text())
    assert (facts["study"], facts["k"], facts["customers"], facts["rows"]) == ("shop", K, 100, len(rows_of(batch)))
    assert [one["slug"] for one in facts["regions"]] == list(REGIONS)
    for part in (part for one in facts["regions"] for part in one["parts"]):
        assert sha256_of(batch.path / part["path"]) == part["sha256"]
    expected = {
        (name, answer.customer, rank, one.item, one.score, answer.by)
        for slug, name in REGIONS.items()
        for region in [Served(study / "runs", "shop").open(slug)]
        for answer in region.recommend(region.customers, K)
        for rank, one in enumerate(answer.items, 1)
    }
    assert set(rows_of(batch)) == expected
    assert batch.path.stat().st_mode & 0o777 == 0o700
    assert (batch.path / "items.csv").exists()


def test_what_was_written_stays_and_the_same_command_goes_on(study, capsys, monkeypatch):
    write, seen = here.BatchFolder.read_part, []

    def interrupted(batch, plan, chunk):
        seen.append(chunk.node)
        if chunk.slug != "berg":
            raise KeyboardInterrupt
        return write(batch, plan, chunk)

    monkeypatch.setattr(BatchFolder, "read_part", interrupted)
    assert command(study) == 130
    monkeypatch.undo()
    [batch] = list_batches(study)
    assert not batch.manifest.exists()
    before = {path: path.stat().st_mtime_ns for path in batch.path.glob("berg/*.parquet")}
    assert len(before) == 3
    assert command(study, "--status") == 1
    assert "3 of 5 files, 60 of 100 customers; its DAG: not submitted; not whole" in capsys.readouterr().out
    assert command(study) == 0
    assert list_batches(study) == [batch]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert command(study) == 0  # it is whole: another one begins
    assert len(list_batches(study)) == 2


def test_another_champion_or_wish_is_another_batch(study):
    first, plan = begin(study)
    assert begin(study) == (first, plan)
    assert begin(study, never=("i1",))[0] != first
    assert begin(study, owned=True)[0] != first
    assert begin(study, chunk=30)[0] != first
    place_run(study, LATER, seed=4)
    assert begin(study)[0] != first
    assert plan_of(json.dumps(dataclasses.asdict(plan))) == plan


def test_filters_and_owned_items_reach_the_files(study):
    batch, plan = begin(study, only=("i1", "i2", "i3"), never=("i2",), owned=True)
    write_here(batch, plan, 1, lambda _: None)
    assert {row[3] for row in rows_of(batch)} == {"i1", "i3"}
    assert (batch.work / "only.txt").read_text() == "i1\ni2\ni3\n"


def spoil(report, **change):
    report.write_text(json.dumps(json.loads(report.read_text()) | change))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": 10_000}, "10000 rows of 25 customers"),
        ({"rows": 0}, "0 rows of 25 customers"),
        ({"customers": 24}, "legal: 25 customers, at most 4 rows each"),
        ({"rows": "many"}, "legal: numbers from 0"),
        ({"by_popularity": True}, "legal: numbers from 0"),
        ({"sha256": "0" * 64}, "its job said 000000000000"),
        ({"seconds": "x"}, "nothing whole came of it"),
        ({"seconds": float("nan")}, "legal: numbers from 0"),
    ],
)
def test_a_job_is_not_believed(study, change, said):
    batch, plan = begin(study)
    write_here(batch, plan, 1, lambda _: None)
    chunk = next(plan.chunks())
    spoil(batch.report(chunk), **change)
    with pytest.raises(PartError, match=said):
        batch.read_part(plan, chunk)
    batch.manifest.unlink()
    with pytest.raises(PartError):
        batch.finish(plan)
    assert not batch.manifest.exists()


@given(st.binary(max_size=300) | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(
    lambda raw: json.dumps(raw).encode()))  # fmt: skip
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_whatever_a_job_brings_is_a_file_or_none(tmp_path, content):
    batch = BatchFolder(tmp_path / "b")
    region = RegionBatch("a", "A", "v", "m", "d", 5, 24, 25, True)
    plan = BatchPlan("s", 2, None, None, (), (region,))
    chunk = next(plan.chunks())
    batch.inputs("a").mkdir(parents=True, exist_ok=True)
    batch.part(chunk).parent.mkdir(exist_ok=True)
    batch.report(chunk).write_bytes(content)
    batch.part(chunk).write_bytes(content)
    with pytest.raises(PartError):
        batch.read_part(plan, chunk)


def test_pre_and_post(study, capsys):
    batch, plan = begin(study)
    first, second, *_ = plan.chunks()
    work = str(batch.work)
    assert node.main(["pre", work, first.node, "0"]) == 0
    assert node.main(["post", work, first.node, "0"]) == 1  # nothing came
    assert node.main(["post", work, first.node, "4"]) == 4  # nobody's retry helps
    assert node.main(["post", work, REPORT_NODE, "0"]) == 1
    write_here(batch, plan, 1, lambda _: None)
    assert node.main(["post", work, first.node, "0"]) == 0
    assert node.main(["pre", work, first.node, "1"]) == SETTLED_BEFORE
    assert node.main(["post", work, second.node, "75"]) == 1
    assert not batch.part(second).exists()
    batch.manifest.unlink()
    assert node.main(["post", work, REPORT_NODE, "0"]) == 1
    assert "part-0001.parquet of berg: nothing whole came of it" in capsys.readouterr().out
    write_here(batch, plan, 1, lambda _: None)
    assert node.main(["post", work, REPORT_NODE, "0"]) == 0
    assert batch.manifest.exists()


def test_the_scripts_archive_needs_nothing_else(study, tmp_path):
    batch, plan = begin(study)
    write_here(batch, plan, 1, lambda _: None)
    archive = pack_recommend()
    (tmp_path / archive.name).write_bytes(archive.content)
    names = zipfile.ZipFile(tmp_path / archive.name).namelist()
    assert not any("numpy" in name for name in names) and len(names) < 60
    argv = [sys.executable, "-I", "-S", str(tmp_path / archive.name), "post", str(batch.work), REPORT_NODE, "0"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


def test_the_job_writes_the_same_file_as_here(study, tmp_path):
    batch, plan = begin(study)
    write_here(batch, plan, 2, lambda _: None)
    write_dag(batch, plan)
    chunk = next(one for one in plan.chunks() if one.slug != "berg")
    lines = (batch.inputs(chunk.slug) / "recommend.sub").read_text().splitlines()
    line = next(line for line in lines if line.startswith("arguments"))
    assert line.endswith(""" --region 'Côte d''Ivoire' --floor floor.nc\"""")
    sandbox = tmp_path / "sandbox"
    sandbox.mkdir()
    code = next(batch.work.glob("nnlib-*.pyz"))
    for path in (code, *batch.inputs(chunk.slug).glob("*.nc")):
        (sandbox / path.name).write_bytes(path.read_bytes())
    words = [code.name, chunk.name, "--customers", f"{chunk.first}-{chunk.last}", "model.nc", "data.nc"]
    words += ["-k", str(K), "--region", "Côte d'Ivoire", "--floor", "floor.nc"]
    argv = [str(batch.work / "recommend.sh"), *words]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(argv, cwd=sandbox, capture_output=True, text=True, env={"PATH": path, "HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert sha256_of(sandbox / f"{chunk.name}.parquet") == sha256_of(batch.part(chunk))


def test_jobs_have_the_submit_commands_of_the_newest_run(study):
    served = Served(study / "runs", "shop")
    assert served.find_submit("berg") == {}
    for night, project in ((NIGHT, "Old"), (LATER, "New")):
        run = place_run(study, night)
        spec = dataclasses.replace(
            spec_of("berg"), job=JobRequest(submit={"MY.ProjectName": project, "nice_user": True})
        )
        run.region("berg").spec.write_text(spec_to_json(spec))
    served = Served(study / "runs", "shop")
    batch, plan = begin(study)
    write_dag(batch, plan, {slug: served.find_submit(slug) for slug in served.regions})
    texts = {one.slug: (batch.inputs(one.slug) / "recommend.sub").read_text() for one in plan.regions}
    assert '# What the study adds.\nMY.ProjectName = "New"\nnice_user = true\nqueue\n' in texts["berg"]
    assert "What the study adds" not in texts["cote-d-ivoire"]


def test_jobs_bring_the_python_of_the_newest_run(study):
    run = place_run(study, LATER)
    for slug in ("berg", "cote-d-ivoire"):
        run.region(slug).spec.write_text(spec_to_json(spec_of(slug)))
    run.region("berg").python_bundle.write_bytes(b"#!/bin/sh\n# glibc 2.36, 104857600 bytes unpacked\n")
    served = Served(study / "runs", "shop")
    bundles = {slug: file for slug in served.regions if (file := served.find_bundle(slug))}
    assert [*bundles] == ["berg"]
    batch, plan = begin(study)
    write_dag(batch, plan, {}, bundles)
    with_one, without = ((batch.inputs(one.slug) / "recommend.sub").read_text() for one in plan.regions)
    assert f"{batch.inputs('berg')}/python.bundle" in with_one and "python.bundle" not in without
    assert f"requirements = {requires_glibc((2, 36))}\n" in with_one and "requirements = true\n" in without
    asked = [int(re.search(r"request_disk = (\d+)MB", text)[1]) for text in (with_one, without)]
    assert asked[0] - asked[1] == 100
    assert (batch.inputs("berg") / "python.bundle").exists(), "old runs may be cleaned"


def test_a_job_that_fails_brings_what_it_promised(study, tmp_path):
    batch, plan = begin(study)
    write_dag(batch, plan)
    argv = [str(batch.work / "recommend.sh"), "nothing.pyz", "part-0000", "model.nc"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode
    assert {path.name for path in tmp_path.glob("part-*")} == {"part-0000.parquet", "part-0000.json"}


def test_options_that_do_not_go_together(study, capsys):
    for words in (["--customer", "b0", "--submit"], ["--all", "--watch"], ["--all", "--because"],
                  ["--all", "--out", "x.csv", "--submit"], ["--all", "--out", "x.csv", "--json"]):  # fmt: skip
        with pytest.raises(SystemExit) as end:
            main(["recommend", str(study), *words])
        assert end.value.code == 2
    assert main(["recommend", str(study), "--all", "--status"]) == 1
    assert "has no recommendations yet; first: regiondag recommend" in capsys.readouterr().err


def test_a_damaged_plan_says_what_to_do(study):
    batch, plan = begin(study)
    (batch.work / "plan.json").write_text("{")
    with pytest.raises(RegiondagError, match=r"plan.json: damaged .* begin anew: remove "):
        batch.read_plan()
    assert read_status(batch, plan, None).written == 0
