"""Rendered files against golden ones; tests/workflows/test_golden_on_pool.py has the real DAGMan read them."""

from __future__ import annotations

import os
from pathlib import Path

import jinja2
import pytest

from regiondag.condor.quoting import QuotingError
from regiondag.config.load import load_config
from regiondag.generate.fresh_data import refresh_data
from regiondag.generate.plan import build_plan
from regiondag.generate.render import Renderer
from regiondag.run.layout import RunFolder
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.shop import STUDY as SHOP
from tests.workflows.shop import write_shop
from tests.workflows.trainers.test_container import write_image

GOLDEN = Path(__file__).parent / "golden"
MEMORY = STUDY.replace("memory: 256MB", 'memory: 256MB, memory_max: 1GB, gpus: 0, requirements: Arch == "X86_64"')
AWKWARD = STUDY.replace("United Kingdom", 'a "b" $(c); 50%').replace("limits: {jobs: 8, jobs_per_region: 2}\n", "")
GRID = STUDY.replace("method: bayes\n  rounds: 2\n  parallel: 2", "method: grid").replace(
    "hidden: {int: [2, 8], log: true}", "hidden: {choice: [2, 4, 8]}"
).replace("log: true}\njob", "log: true, points: 2}\njob")  # fmt: skip
NEIGHBOUR = STUDY.replace("data/germany.nc}", "data/germany.nc, init: neighbour, neighbour: United Kingdom}")
POOLED = STUDY.replace("job:", "init: pooled\npooled: {search: {rounds: 1}, job: {memory: 512MB}}\njob:", 1)

GPUS = STUDY.replace(
    "job: {", "final: {gpus: 4, require_gpus: Capability >= 8.0}\njob: {gpus: {min: 2, max: 8}, checkpoint: 0, ", 1
)
CONTAINED = """\
study: contained
regions: [{name: North}]
trainer:
  command: [Rscript, train.R, "{x}"]
  container: {image: "docker://rocker/r-ver:4.4"}
  metric: {name: auc}
search: {rounds: 1, space: {x: {real: [0, 1]}}}
job: {gpus: 0, requirements: Arch == "X86_64"}
"""

CASES = {
    "bayes-23.9": (STUDY, (23, 9, 6)),
    "memory-23.9": (MEMORY, (23, 9, 6)),
    "memory-25.14": (MEMORY, (25, 14, 1)),
    "awkward-25.14": (AWKWARD, (25, 14, 1)),
    "grid-23.9": (GRID, (23, 9, 6)),
    "neighbour-23.9": (NEIGHBOUR, (23, 9, 6)),
    "pooled-25.14": (POOLED, (25, 14, 1)),
    "families-23.9": (SHOP, (23, 9, 6)),
    "gpus-23.9": (GPUS, (23, 9, 6)),
    "contained-23.9": (CONTAINED, (23, 9, 6)),
}


def texts(renderer: Renderer) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, pieces in renderer.files():
        found[name] = found.get(name, "") + "".join(pieces)
    return found


def rendered(folder: Path, case: str) -> dict[str, str]:
    text, version = CASES[case]
    study = write_shop(folder, text) if text == SHOP else write_study(folder, text)
    refresh_data(study)
    plan = build_plan(load_config(study))
    renderer = Renderer(
        RunFolder(Path("/runs/run-tiny-1")),
        plan,
        htcondor=version,
        python="/venv/bin/python",
        codes=("regiondag-0123456789ab.pyz", "nnlib-0123456789ab.pyz"),
    )
    return texts(renderer)


@pytest.mark.parametrize("case", CASES)
def test_golden(tmp_path, case):
    """REGIONDAG_WRITE_GOLDEN=1 writes the files anew; read the diff before you commit it."""
    text = "".join(f"=== {name}\n{content}" for name, content in sorted(rendered(tmp_path, case).items()))
    golden = GOLDEN / f"{case}.txt"
    if os.environ.get("REGIONDAG_WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


def test_memory_grows_as_each_version_knows_it(tmp_path):
    old = rendered(tmp_path / "a", "memory-23.9")["regions/germany/train.sub"]
    new = rendered(tmp_path / "b", "memory-25.14")["regions/germany/train.sub"]
    assert "larger_memory = 512, 1024" in new and "retry_request_memory = $(larger_memory)" in new
    assert "out_of_memory" not in new
    assert "retry_request_memory" not in old and "HoldReasonCode =?= 34" in old


def test_every_job_asks_for_a_gpu_slot(tmp_path):
    for name, text in rendered(tmp_path, "bayes-23.9").items():
        if name.endswith(("train.sub", "final.sub")):
            assert "requirements = (TARGET.HAS_GPU =?= True) $(avoid)\n" in text and "request_gpus = 1\n" in text


def test_several_gpus_are_of_one_kind_on_one_machine(tmp_path):
    files = rendered(tmp_path, "gpus-23.9")
    train, final = (files[f"regions/germany/{kind}.sub"] for kind in ("train", "final"))
    one_kind = "requirements = (TARGET.HAS_GPU =?= True) && (TARGET.GPUs_DeviceName =!= undefined) $(avoid)\n"
    assert one_kind in train and one_kind in final
    # What PRE knows of earlier tries comes after the study's own figure, and before it is used.
    assert (
        train.index("\ngpus = 8\n") < train.index("\ninclude ifexist") < train.index("\nrequest_gpus = min({ $(gpus), ")
    )
    assert "require_gpus" not in train
    assert "request_gpus = 4\nrequire_gpus = Capability >= 8.0\n" in final and "\ngpus = " not in final
    assert "request_cpus = 1\n" in final  # as the study says of all jobs


def rendered_of(study: Path) -> dict[str, str]:
    plan = build_plan(load_config(study))
    renderer = Renderer(RunFolder(Path("/runs/r")), plan, htcondor=(23, 9, 6), python="/p", codes=("a", "b"))
    return texts(renderer)


def test_who_names_the_kind_gets_it_on_mixed_machines_too(tmp_path):
    named = GPUS.replace("Capability >= 8.0", "'DeviceName == \"NVIDIA L4\"'")
    files = rendered_of(write_study(tmp_path, named))
    assert "requirements = (TARGET.HAS_GPU =?= True) $(avoid)\n" in files["regions/germany/final.sub"]
    assert 'require_gpus = DeviceName == "NVIDIA L4"\n' in files["regions/germany/final.sub"]


def test_jobs_get_the_submit_commands_of_the_study(tmp_path):
    given = 'final: {submit: {"+projectname": Last}}\njob: {submit: {"+ProjectName": "a \\"b\\"", nice_user: true}, '
    files = rendered_of(write_study(tmp_path, STUDY.replace("job: {", given, 1)))
    train, final = (files[f"regions/germany/{kind}.sub"] for kind in ("train", "final"))
    assert '\n# What the study adds.\nMY.ProjectName = "a \\"b\\""\nnice_user = true\n' in train
    assert '\n# What the study adds.\nMY.projectname = "Last"\nnice_user = true\n' in final
    assert "What the study adds" not in rendered(tmp_path / "none", "bayes-23.9")["regions/germany/train.sub"]


def test_an_image_goes_with_the_job_where_it_is_a_file(tmp_path):
    write_image(tmp_path / "r.sif")
    said = 'image: "docker://rocker/r-ver:4.4"'
    sent = rendered_of(write_study(tmp_path, CONTAINED.replace(said, "image: r.sif")))["regions/north/train.sub"]
    assert "/runs/r/regions/north/program.zip,/runs/r/regions/north/container.sif," in sent
    there = rendered_of(write_study(tmp_path, CONTAINED.replace(said, "image: /images/r.sif, shared: true")))
    assert (
        "/images/r.sif" not in there["regions/north/train.sub"]
        and "container.sif" not in there["regions/north/train.sub"]
    )


def test_tuning_jobs_never_get_the_test_data(tmp_path):
    files = rendered(tmp_path, "bayes-23.9")
    assert "data.test.nc" not in files["regions/germany/train.sub"]
    assert "data.test.nc" in files["regions/germany/final.sub"]


def test_a_run_directory_that_dagman_cannot_read_is_refused(tmp_path):
    plan = build_plan(load_config(write_study(tmp_path)))
    run = RunFolder(Path("/my runs/run-1"))
    renderer = Renderer(run, plan, htcondor=(23, 9, 6), python="/p", codes=("a", "b"))
    with pytest.raises(QuotingError, match="--out"):
        for _, pieces in renderer.files():
            "".join(pieces)


def test_only_regions_that_start_from_a_model_get_it(tmp_path):
    files = rendered(tmp_path, "neighbour-23.9")
    for name, text in files.items():
        there = name.startswith("regions/germany/") and name.endswith(".sub")
        assert (",/runs/run-tiny-1/regions/germany/init.nc," in text) == there, name
    edge = "PARENT united-kingdom_final CHILD germany_t0000 germany_t0001\n"
    assert [name for name, text in files.items() if edge in text] == ["study.dag"]


def test_a_study_of_families(tmp_path):
    files = rendered(tmp_path, "families-23.9")
    slugs = ("avon", "berg", "cove", "dale")
    for slug in slugs:
        assert f"PARENT pooled_final CHILD {slug}_final\n" in files["study.dag"]
        assert f"regions/{slug}/train.sub" not in files and "_t0000" not in files[f"regions/{slug}/region.dag"]
        # A region alone has what was chosen for all before; its own job is fitted on the data of all.
        final = files[f"regions/{slug}/final.sub"]
        assert "regions/pooled/data.final.nc" in final and "regions/pooled/data.all.nc" in final
        assert f"regions/{slug}/data" not in final
    for dag in ("regions/pooled/region.dag", "study.dag"):
        assert "PARENT pooled_t0008 CHILD pooled_final\n" in files[dag]
    assert "data.test.nc" not in files["regions/pooled/train.sub"] and "scores.npy" in files["regions/pooled/train.sub"]
    assert "floor.nc" in files["regions/pooled/final.sub"]
    assert not any("standing.nc" in text or "network.json" in text for text in files.values())


@pytest.mark.parametrize("value", [None, "a\nqueue 1000", "a\rb"])
def test_templates_print_neither_none_nor_line_breaks(tmp_path, value):
    from regiondag.condor.templates import template_environment

    with pytest.raises((jinja2.TemplateRuntimeError, QuotingError)):
        template_environment().from_string("x = {{ value }}").render(value=value)


def test_templates_refuse_names_they_were_not_given():
    from regiondag.condor.templates import template_environment

    with pytest.raises(jinja2.UndefinedError):
        template_environment().from_string("{{ nowhere }}").render()
