"""Files that a region's jobs share reach each machine once, where HTCondor knows how (25.13.2 and later)."""

from __future__ import annotations

import re

import pytest

from regiondag.condor import versions
from tests.workflows.on_pool.test_study import SHORT, finish, generate, submit, summary, wait

pytestmark = pytest.mark.condor


def test_champions_of_two_regions_with_one_transfer_of_data_each(pool, run_area, capsys):
    if not versions.supports(pool.version, "common_input_catalogs"):
        pytest.skip(f"HTCondor {pool.version} transfers every job's files by themselves")
    run = generate(run_area, capsys, SHORT)
    script = run.path / "train.sh"
    look = "stat -c 'shared %n %a %h' data.train.nc nnlib-*.pyz >&2\n"
    script.write_text(script.read_text().replace("# HTCondor signals", look + "# HTCondor signals"))
    submit(run)
    assert finish(pool, run).exit_code == 0
    assert all(row["status"] == "promoted" for row in summary(run)["regions"])
    for job in run.path.glob("regions/*/trials/0*/job.err"):
        seen = re.findall(r"^shared (\S+) (\d+) (\d+)$", job.read_text(), re.MULTILINE)
        assert len(seen) == 2 and all(mode == "444" and int(links) > 1 for _, mode, links in seen), seen
    logs = [path.read_text() for path in run.path.glob("regions/*/trials/*/job.log")]
    logs.append((run.path / "study.dag.nodes.log").read_text())
    common = {event for log in logs for event in log.split("\n...\n") if event.startswith("047 ")}
    begun = [event for event in common if "tarted" in event]
    assert len(begun) == 2, "\n".join(sorted(common)) or "\n".join(logs)  # one for each region


def test_a_file_that_came_corrupt_is_brought_anew(pool, run_area, capsys):
    """The machine keeps what it got for all jobs of the region; the next try of each node brings its own."""
    run = generate(run_area, capsys, SHORT)
    region = run.region("germany")
    data = region.path / "data.valid.nc"
    whole = data.read_bytes()
    data.write_bytes(bytes(255 - byte for byte in whole[:64]) + whole[64:])
    submit(run)
    wait(pool, run, lambda _: "corrupt transfer" in text_of(region.journal), "the first job to say so")
    data.write_bytes(whole)
    assert finish(pool, run).exit_code == 0
    assert all(row["status"] == "promoted" for row in summary(run)["regions"])
    said = "with input files of its own"
    assert (said in run.manager_log.read_text()) == versions.supports(pool.version, "common_input_catalogs")


def text_of(path):
    return path.read_text() if path.exists() else ""
