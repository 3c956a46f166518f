"""`fleet clean`: what carries the tag and serves nobody is shown first, and what serves somebody stays."""

from __future__ import annotations

import pytest

from regiondag.cli import main
from regiondag.fleet import orphans
from tests.workflows.fleet.conftest import leave_orphans, leave_snapshot, play_pool


@pytest.fixture
def run(cloud, fleet_file, monkeypatch):
    play_pool(monkeypatch, list)
    return lambda *words: main(["fleet", words[0], "--file", str(fleet_file), *words[1:]])


def changed(cloud) -> list[str]:
    return [name for name in cloud.names() if not name.startswith("Describe")]


def test_it_shows_first_and_removes_when_told(cloud, run, capsys, monkeypatch):
    left = leave_orphans(cloud, monkeypatch)
    assert run("clean") == 0
    said = capsys.readouterr()
    assert all(one in said.out for one in left)
    assert "nothing was removed; --yes removes what is listed" in said.err
    assert changed(cloud) == []
    assert run("clean", "--yes") == 0
    assert "6 of 6 removed" in capsys.readouterr().err
    capsys.readouterr()
    assert run("clean") == 0
    assert "nothing that carries the tag of fleet demo is left over" in capsys.readouterr().err


def test_a_fleet_that_works_keeps_all_it_has(cloud, run, capsys):
    assert run("up") == 0
    assert run("clean", "--yes") == 0
    assert "nothing that carries the tag of fleet demo is left over" in capsys.readouterr().err
    assert len(cloud.ids()) == 2


def test_what_was_made_a_moment_ago_is_left_alone(cloud, run, monkeypatch):
    left = leave_orphans(cloud, monkeypatch)
    monkeypatch.setattr(orphans, "YOUNG_SECONDS", 600.0)
    assert run("clean", "--yes") == 0
    assert [raw["VolumeId"] for raw in cloud.ec2.describe_volumes(VolumeIds=[left[2]])["Volumes"]] == [left[2]]


def test_workers_that_drain_while_the_fleet_goes_down_are_no_orphans(cloud, run, capsys):
    assert run("up") == 0
    assert run("scale", "--workers", "0") == 0
    for template in cloud.ec2.describe_launch_templates()["LaunchTemplates"]:
        cloud.ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
    assert run("clean", "--yes") == 0
    assert len(cloud.ids()) == 2


def test_what_is_refused_is_told_and_the_others_go(cloud, run, capsys, monkeypatch):
    leave_orphans(cloud, monkeypatch)
    cloud.refuse("DeleteVolume", "UnauthorizedOperation")
    assert run("clean", "--yes") == 1
    said = capsys.readouterr().err
    assert "removing the volume vol-" in said
    assert "5 of 6 removed" in said


def snapshots(cloud) -> set[str]:
    return {raw["SnapshotId"] for raw in cloud.ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]}


def test_a_snapshot_goes_only_when_its_image_is_gone(cloud, run, capsys, monkeypatch):
    monkeypatch.setattr(orphans, "UPLOAD_SECONDS", -60.0)
    kept, gone = leave_snapshot(cloud, keep_image=True), leave_snapshot(cloud)
    foreign = cloud.ec2.create_snapshot(
        VolumeId=cloud.ec2.create_volume(AvailabilityZone="eu-central-1a", Size=1)["VolumeId"]
    )
    assert run("clean") == 0
    said = capsys.readouterr().out
    assert gone in said
    assert "regiondag-trixie-old is deregistered" in " ".join(said.split())
    assert kept not in said
    assert run("clean", "--yes") == 0
    assert gone not in snapshots(cloud)
    assert {kept, foreign["SnapshotId"]} <= snapshots(cloud)


def test_a_snapshot_that_waits_for_its_image_is_left_alone(cloud, run):
    young = leave_snapshot(cloud)
    assert run("clean", "--yes") == 0
    assert young in snapshots(cloud)


def test_an_upload_that_goes_on_is_left_alone(cloud, run, monkeypatch):
    monkeypatch.setattr(orphans, "UPLOAD_SECONDS", -60.0)
    pending = leave_snapshot(cloud)
    describe = orphans.list_all

    def as_pending(client, operation, key, **more):
        found = describe(client, operation, key, **more)
        return [{**raw, "State": "pending"} if key == "Snapshots" else raw for raw in found]

    monkeypatch.setattr(orphans, "list_all", as_pending)
    assert run("clean", "--yes") == 0
    assert pending in snapshots(cloud)
