"""Runs as RO-Crates and in WfFormat: what stands in them, what does not, and that their own readers take them."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from nnlib.contract import sha256_of
from regiondag.cli import main
from regiondag.condor.events.attempts import Attempt, Leg, Span
from regiondag.run.history import TrialOutcome
from regiondag.run.layout import NodeName, RunFolder
from regiondag.trials.provenance import Task, read_provenance
from regiondag.trials.ro_crate import digest_uri, public_study, write_crate
from regiondag.trials.wfformat import wfformat_of
from tests.support.made_up_run import write_logs
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create

pytestmark = pytest.mark.slow

START = 1_790_000_000.0
STUDY_OF_PROGRAM = """\
regions: [{name: North}]
trainer: {command: [python, fit.py], files: FILES, metric: {name: auc}}
search: {rounds: 1, space: {rate: {real: [0, 1]}}}
job: {gpus: 0}
"""
# Of the schema, https://github.com/wfcommons/WfFormat: what must be there, and what names may be made of.
TASK_ID, FILE_ID = re.compile(r"[0-9a-zA-Z-_.#]+"), re.compile(r"[0-9a-zA-Z-_./:#]+")


def attempt(node: NodeName, job: int, start: float, seconds: float, code: int = 0) -> Attempt:
    slot = "slot1@gpu-1.example.org"
    leg = Leg("gpu-1.example.org", slot, Span(start + 8, start + 8 + seconds), Span(start, start), Span(start, start))
    return Attempt(node, f"{job}.0", Span(start - 5, start + 8 + seconds), (leg,), (), code)


@pytest.fixture
def run(trained, tmp_path):
    """A run that was trained, with the event logs of its jobs: the first one of trial 0 was in vain."""
    folder = RunFolder(tmp_path / "runs" / trained.path.name)
    shutil.copytree(trained.path, folder.path)
    region = next(path.name for path in (folder.path / "regions").iterdir() if (path / "champion").exists())
    first, last = NodeName(region, 0), NodeName(region, None)
    jobs = [attempt(first, 1, START, 10, 75), attempt(first, 2, START + 100, 20), attempt(last, 3, START + 200, 30)]
    write_logs(folder, jobs)
    return folder


def test_wfformat_has_the_graph_and_what_ended(run):
    known = read_provenance(run)
    found = json.loads(json.dumps(wfformat_of(known)))
    assert found["schemaVersion"] == "1.5" and found["runtimeSystem"]["name"] == "HTCondor DAGMan"
    specification, execution = found["workflow"]["specification"], found["workflow"]["execution"]
    tasks = {task["id"]: task for task in specification["tasks"]}
    for task in tasks.values():
        assert TASK_ID.fullmatch(task["id"])
        assert all(task["id"] in tasks[parent]["children"] for parent in task["parents"])
        assert all(task["id"] in tasks[child]["parents"] for child in task["children"])
    last = next(task for name, task in tasks.items() if name.endswith("_final") and task["outputFiles"])
    assert last["parents"] and last["name"] == "final"
    files = {one["id"]: one["sizeInBytes"] for one in specification["files"]}
    named = {name for task in tasks.values() for key in ("inputFiles", "outputFiles") for name in task[key]}
    assert named == files.keys() and all(map(FILE_ID.fullmatch, files))
    assert all(size == (run.path / name).stat().st_size for name, size in files.items())
    assert any(name.endswith("data.train.nc") for name in last["inputFiles"]) or any(
        name.endswith("data.final.nc") for name in last["inputFiles"]
    )
    first = next(one for one in execution["tasks"] if one["id"].endswith("_t0000"))
    assert first["runtimeInSeconds"] == 20 and first["machines"] == ["gpu-1.example.org"]
    assert execution["makespanInSeconds"] == 143 and len(execution["tasks"]) == 2
    assert [one["nodeName"] for one in execution["machines"]] == ["gpu-1.example.org"]


def test_a_run_that_has_not_begun_has_its_graph(study_file, tmp_path, capsys):
    run = create(study_file, tmp_path / "runs")
    capsys.readouterr()
    assert main(["study", "export", str(run.path), "--wfformat", "-", "--ro-crate", str(tmp_path / "crate")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "execution" not in found["workflow"] and len(found["workflow"]["specification"]["tasks"]) == 10
    graph = json.loads((tmp_path / "crate" / "ro-crate-metadata.json").read_text())["@graph"]
    assert [one["@id"] for one in graph if one["@type"] == "CreateAction"] == [f"#{run.path.name}"]


def crate_of(run: RunFolder, folder: Path, **options: str) -> dict[str, dict]:
    write_crate(run, read_provenance(run), folder, START, **options)
    graph = json.loads((folder / "ro-crate-metadata.json").read_text())["@graph"]
    return {one["@id"]: one for one in graph}


def references(value) -> list[str]:
    if isinstance(value, dict):
        return [value["@id"]] if value.keys() == {"@id"} else [one for v in value.values() for one in references(v)]
    return [one for v in value for one in references(v)] if isinstance(value, list) else []


def test_a_crate_says_what_ran_on_what_and_what_came_of_it(run, tmp_path):
    graph = crate_of(run, tmp_path / "crate", license_="https://spdx.org/licenses/CC0-1.0")
    known = read_provenance(run)
    manifest = known.manifest
    outside = {"https://w3id.org/ro/crate/1.1"}
    for one in graph.values():
        assert set(references({**one, "@id": ""})) <= graph.keys() | outside, one
        kinds = one["@type"] if isinstance(one["@type"], list) else [one["@type"]]
        if "File" in kinds and not one["@id"].startswith("ni:"):
            assert one["sha256"] == sha256_of(tmp_path / "crate" / one["@id"])
    root = graph["./"]
    assert root["license"] == {"@id": "https://spdx.org/licenses/CC0-1.0"}
    assert graph[root["mainEntity"]["@id"]]["@type"] == ["File", "SoftwareSourceCode", "ComputationalWorkflow"]
    data = {name: digest for name, digest in manifest.sha256.items() if name.endswith(".nc")}
    assert data and {digest_uri(digest) for digest in data.values()} <= graph.keys()
    assert not list((tmp_path / "crate").rglob("data.*.nc"))
    actions = {name: one for name, one in graph.items() if one["@type"] == "CreateAction"}
    trial = next(one for name, one in actions.items() if name.endswith("_t0000"))
    assert trial["startTime"] == "2026-09-21T14:15:08+00:00" and trial["actionStatus"].endswith("CompletedActionStatus")
    values = {graph[one]["name"]: graph[one]["value"] for one in references(trial["object"]) if one.startswith("#")}
    assert values == next(task.point for task in known.tasks if task.node.number == 0 and task.point)
    final = next(one for name, one in actions.items() if name.endswith("_final") and "result" in one)
    assert any(one.endswith("champion/model.nc") for one in references(final["result"]))


def test_data_from_urls_are_named_by_digest_and_address_but_no_machine_s_own_path(tmp_path):
    (tmp_path / "fit.py").write_text("")
    files = [{"url": f"https://host/{{region}}{n}.csv", "sha256": f"{n}f" * 32, "name": f"{n}.csv"} for n in (1, 2)]
    files += [{"url": "file:///home/anna/all.csv", "sha256": "3f" * 32}]
    text = STUDY_OF_PROGRAM.replace("FILES", json.dumps(["fit.py", *files]))
    run = create(write_study(tmp_path, text), tmp_path / "runs")
    known = replace(read_provenance(run), tasks=(Task(NodeName("north", 0), outcome=TrialOutcome(0, "ok", value=1)),))
    write_crate(run, known, tmp_path / "crate", START)
    graph = {one["@id"]: one for one in json.loads((tmp_path / "crate/ro-crate-metadata.json").read_text())["@graph"]}
    ours = [graph[digest_uri(f"{n}f" * 32)] for n in (1, 2, 3)]
    assert [one["name"] for one in ours] == ["1.csv", "2.csv", "all.csv"]
    assert [one.get("contentUrl") for one in ours] == ["https://host/North1.csv", "https://host/North2.csv", None]
    for holder, key in (("./", "hasPart"), (f"#{known.name}", "object"), ("#north_t0000", "object")):
        assert {one["@id"] for one in ours} <= set(references(graph[holder][key])), holder


def test_nobody_s_folders_and_addresses_go_out(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    tail = f"# of {tmp_path}/x\nnotify: {{email: me@example.org}}\n\nlimits: {{jobs: 7}}\n"
    text = STUDY.replace("limits: {jobs: 8, jobs_per_region: 2}\n", tail)
    run = create(write_study(tmp_path / "shop", text), tmp_path / "shop" / "runs")
    said = public_study(run)
    assert "me@example.org" not in said and "limits: {jobs: 7}" in said and "# of ~/x" in said
    write_crate(run, read_provenance(run), tmp_path / "crate", START)
    for file in (tmp_path / "crate").rglob("*"):
        assert file.is_dir() or str(tmp_path).encode() not in file.read_bytes(), file


@pytest.mark.parametrize(
    "text", ["{study: a, notify: {email: b@c.d}, regions: [x]}", "notify: {email: &b b@c.d}\nstudy: *b\n"]
)
def test_sections_that_share_lines_or_values_are_written_anew(tmp_path, text):
    (tmp_path / "study.yaml").write_text(text)
    said = public_study(RunFolder(tmp_path))
    assert "notify" not in said and json.loads(said)["study"]


def test_a_crate_takes_no_folder_of_somebody(run, tmp_path, capsys):
    assert main(["study", "export", str(run.path), "--ro-crate", str(run.path.parent)]) == 2
    assert "is not an empty folder" in capsys.readouterr().err


def test_the_readers_of_both_formats_take_them(run, tmp_path):
    """With the real ones, where they are installed: pip install rocrate wfcommons."""
    rocrate = pytest.importorskip("rocrate.rocrate")
    instance = pytest.importorskip("wfcommons.wfinstances.instance")
    crate_of(run, tmp_path / "crate")
    crate = rocrate.ROCrate(tmp_path / "crate")
    assert crate.mainEntity.id == "study.yaml"
    try:
        found = instance.Instance(tmp_path / "crate" / "wfformat.json")
    except RuntimeError as error:  # its schema is on the web
        pytest.skip(str(error))
    assert found.makespan == 143
