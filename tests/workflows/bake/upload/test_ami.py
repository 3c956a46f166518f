"""A tested image becomes an AMI, whatever happens in between."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nnlib.contract import sha256_of
from regiondag.bake import artifact
from regiondag.bake.artifact import DiskImage, write_tested
from regiondag.bake.upload import snapshot as snapshots
from regiondag.bake.upload.ami import describe_ami, make_ami
from regiondag.bake.upload.journal import open_journal, read_journal
from regiondag.bake.upload.snapshot import Encryption
from regiondag.cli import main
from regiondag.errors import AwsError, BakeError, UsageError
from regiondag.util import aws as aws_module
from tests.workflows.aws_policy import check_policy, check_wide_resources
from tests.workflows.bake.conftest import BLOCK, MANIFEST, make_image, write_disk
from tests.workflows.fake_aws import REGION, Answer, Call, FakeAws, ebs_error, ec2_error, environment, tags_of

NAME = f"regiondag-trixie-closed-{MANIFEST.hash[:12]}"
KEY = f"arn:aws:kms:{REGION}:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
ROOT = Path(__file__).parents[4]
MANY = 24
POLICY = ROOT / "ami" / "policies" / "bake.json"


def upload(image: DiskImage, said: list[str] | None = None, **options: object) -> str:
    arguments = {"region": REGION, "name": None, "connections": 4, **options}
    return make_ami(image, tell=(said if said is not None else []).append, **arguments)  # type: ignore[arg-type]


def journal_of(image: DiskImage) -> Path:
    return image.folder / "ami" / f"{REGION}.jsonl"


def the_snapshot(aws: FakeAws) -> str:
    (snapshot,) = aws.ebs.snapshots
    return str(snapshot)


def many_blocks(tmp_path: Path) -> DiskImage:
    return make_image(tmp_path / "many", {2 * n: os.urandom(BLOCK) for n in range(MANY)}, 2 * MANY * BLOCK)


def same_bytes(aws: FakeAws, snapshot: str, image: DiskImage) -> bool:
    """Whether a volume of the snapshot would hold the disk."""
    volume = bytearray(aws.ebs.snapshots[snapshot].volume_size << 30)
    for number, data in aws.content(snapshot).items():
        volume[number * BLOCK : (number + 1) * BLOCK] = data
    disk = image.disk.read_bytes()
    return volume[: len(disk)] == disk and not any(volume[len(disk) :: 4093])


def test_an_image_becomes_an_ami(aws, image):
    said: list[str] = []
    ami = upload(image, said)
    assert aws.names() == [
        "DescribeImages",
        "StartSnapshot",
        "PutSnapshotBlock",
        "CompleteSnapshot",
        "DescribeSnapshots",
        "RegisterImage",
        "DescribeImages",
    ]
    snapshot = the_snapshot(aws)
    assert sorted(aws.content(snapshot)) == [0, 3, 7, 9]
    assert same_bytes(aws, snapshot, image)
    assert aws.ec2.amis[ami].name == NAME
    assert any("4 blocks" in line for line in said)
    assert said[-1] == f"{ami} is registered in {REGION} as {NAME!r}, from {snapshot}"


def test_snapshot_and_ami_are_tagged_when_they_are_made(aws, image):
    ami = upload(image)
    started = next(call for call in aws.calls if call.action == "StartSnapshot").arguments
    tags = {tag["Key"]: tag["Value"] for tag in started["Tags"]}
    assert tags == {
        "Name": NAME,
        "regiondag:manifest": MANIFEST.hash,
        "regiondag:disk": sha256_of(image.disk),
        "regiondag:suite": "trixie",
        "regiondag:htcondor": "23.9.6",
        "regiondag:driver": "closed 550.163.01",
        "regiondag:fabric-manager": "none",
        "regiondag:kernel": "6.12.107+deb13-cloud-amd64",
    }
    registered = next(call for call in aws.calls if call.action == "RegisterImage").arguments
    assert registered["TagSpecification.1.ResourceType"] == "image"
    assert tags_of(registered, "TagSpecification.1.Tag") == tags
    assert {tag["key"]: tag["value"] for tag in aws.ec2.amis[ami].get_tags()} == tags
    assert started["VolumeSize"] == 1
    assert started["Timeout"] == snapshots.TIMEOUT
    assert "Encrypted" not in started
    assert MANIFEST.hash in started["Description"]


def test_the_second_run_finds_the_ami_and_uploads_nothing(aws, image):
    ami = upload(image)
    aws.calls.clear()
    said: list[str] = []
    assert upload(image, said) == ami
    assert aws.names() == ["DescribeImages"]
    assert f"{ami} is made of this image already" in said[-1]


def test_another_name_is_made_of_the_same_snapshot(aws, image):
    first = upload(image)
    second = upload(image, name="second/one [x]")
    assert first != second
    assert aws.count("StartSnapshot") == 1
    assert aws.count("PutSnapshotBlock") == 4


def test_a_name_that_is_taken_is_refused_before_the_upload(aws, image):
    aws.ec2.register_image("worker", "somebody else's")
    with pytest.raises(UsageError, match=r"'worker' is taken by ami-\w+, not made by regiondag .*--name"):
        upload(image, name="worker")
    ours = dataclasses.replace(MANIFEST, driver="none", driver_version="")
    other = make_image(image.folder.parent / "other", {0: b"x"}, BLOCK, ours)
    ami = upload(other, name="theirs")
    with pytest.raises(UsageError, match=rf"taken by {ami}, made of manifest {ours.hash[:12]} \(this image's"):
        upload(image, name="theirs")
    assert not journal_of(image).exists()


def test_a_name_that_is_taken_meanwhile_keeps_the_snapshot(aws, image):
    aws.faults.append(lambda call: ec2_error("InvalidAMIName.Duplicate") if call.action == "RegisterImage" else None)
    with pytest.raises(UsageError, match=r"given to another AMI meanwhile.*--name.*nothing is sent twice"):
        upload(image)
    aws.faults.clear()
    sent = aws.count("PutSnapshotBlock")
    upload(image, name="free")
    assert aws.count("PutSnapshotBlock") == sent


@pytest.mark.parametrize("name", ["ab", "x" * 129, "a:b", "naïve", "new\nline", ""])
def test_names_that_aws_would_refuse(aws, image, name):
    with pytest.raises(UsageError, match="3 to 128 characters"):
        upload(image, name=name)
    assert aws.calls == []


def test_an_encrypted_snapshot(aws, image):
    upload(image, encryption=Encryption(True, KEY))
    started = next(call for call in aws.calls if call.action == "StartSnapshot").arguments
    assert (started["Encrypted"], started["KmsKeyArn"]) == (True, KEY)


def test_an_unencrypted_ami_is_not_taken_for_an_encrypted_one(aws, image):
    upload(image)
    with pytest.raises(UsageError, match="it is not encrypted; choose another with --name"):
        upload(image, encryption=Encryption(True))
    upload(image, name="encrypted", encryption=Encryption(True))
    assert aws.count("StartSnapshot") == 2


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("alias/mine", "takes the ARN of a key, not an id or an alias"),
        (KEY.replace(REGION, "us-east-1"), f"a key of us-east-1, but the AMI is made in {REGION}"),
    ],
)
def test_keys_that_aws_would_refuse(aws, image, key, message):
    with pytest.raises(UsageError, match=message):
        upload(image, encryption=Encryption(True, key))
    assert aws.calls == []


@pytest.mark.parametrize("connections", [0, -1, 257])
def test_numbers_of_connections(aws, image, connections):
    with pytest.raises(UsageError, match=r"--connections -?\d+: legal are 1 to 256"):
        upload(image, connections=connections)


def test_an_image_without_a_test_is_refused(aws, image):
    (image.folder / "tested.json").unlink()
    with pytest.raises(BakeError, match=r"no record of a passed test .*run: regiondag bake test /"):
        upload(image)
    (image.folder / "tested.json").write_text("{")
    with pytest.raises(BakeError, match="no record of a passed test"):
        upload(image)
    assert aws.calls == []


def test_a_disk_that_changed_after_its_test_is_refused(aws, image):
    write_disk(image.disk, {0: b"other"}, BLOCK)
    with pytest.raises(BakeError, match=r"disk\.raw: it has changed since its test of 2026-11-22T10:00:00Z \(sha256"):
        upload(image)
    assert aws.calls == []


def test_a_test_of_another_manifest_is_refused(aws, image):
    write_tested(image, artifact.Tested(sha256_of(image.disk), "cd" * 32, "2026-11-22T10:00:00Z", ()))
    with pytest.raises(BakeError, match="was of manifest cdcdcdcdcdcd, and this is"):
        upload(image)
    assert aws.calls == []


def test_a_disk_that_changes_while_it_is_uploaded_is_not_registered(aws, image):
    def change(call: Call) -> Answer | None:
        if call.action == "StartSnapshot":
            write_disk(image.disk, {0: b"other", 3: b"x", 7: b"y", 9: b"z"}, 10 * BLOCK)
        return None

    aws.faults.append(change)
    with pytest.raises(BakeError, match="was changed while it was uploaded; bake and test the image again"):
        upload(image)
    assert aws.count("CompleteSnapshot") == aws.count("RegisterImage") == 0


def failing(times: int, answer: Answer, action: str = "PutSnapshotBlock", number: int | None = None):
    """A fault of the first calls, of one block or of any."""
    left = [times]

    def fault(call: Call) -> Answer | None:
        if call.action != action or call.number != number or left[0] == 0:
            return None
        left[0] -= 1
        return answer

    return fault


@pytest.mark.parametrize(
    "answer",
    [
        ebs_error("InternalServerException", status=500),
        ebs_error("RequestThrottledException"),
        ebs_error("ServiceUnavailable", status=503),
    ],
)
def test_a_block_that_fails_twice_is_sent_again(aws, image, answer):
    aws.faults.append(failing(2, answer, number=7))
    upload(image)
    assert aws.count("PutSnapshotBlock") == 6
    assert same_bytes(aws, the_snapshot(aws), image)


def test_throttled_calls_of_ec2_are_repeated(aws, image):
    aws.faults += [
        failing(1, ec2_error("RequestLimitExceeded", status=503), action)
        for action in ("DescribeImages", "DescribeSnapshots", "RegisterImage")
    ]
    upload(image)
    assert aws.count("RegisterImage") == 2


def test_a_block_that_always_fails_stops_the_upload_and_a_later_run_goes_on(aws, image, monkeypatch):
    monkeypatch.setattr(aws_module, "RETRIES", 2)
    aws.faults.append(failing(-1, ebs_error("InternalServerException", "disk on fire", 500), number=7))
    with pytest.raises(
        AwsError,
        match=r"writing block 7 of snap-\w+: AWS answers InternalServerException: disk on fire; 3 blocks are at AWS, "
        r"which keeps them for a day: the same command goes on from there",
    ):
        upload(image)
    assert aws.count("CompleteSnapshot") == 0
    aws.faults.clear()
    aws.calls.clear()
    upload(image)
    assert [call.number for call in aws.calls if call.action == "PutSnapshotBlock"] == [7]
    assert aws.count("StartSnapshot") == 0
    assert same_bytes(aws, the_snapshot(aws), image)


def test_a_snapshot_that_parts_of_aws_do_not_know_yet(aws, image):
    aws.faults.append(failing(3, ebs_error("ResourceNotFoundException", status=404), number=3))
    upload(image)
    assert aws.count("PutSnapshotBlock") == 7


@pytest.mark.parametrize(
    ("action", "answer", "message"),
    [
        ("StartSnapshot", ebs_error("AccessDeniedException", "no"), "starting a snapshot: .*the policy of these cred"),
        ("StartSnapshot", ebs_error("ServiceQuotaExceededException", "full", 402), "full; a quota of this account"),
        ("StartSnapshot", ebs_error("ExpiredTokenException", "late"), "late; renew the credentials"),
        ("RegisterImage", ec2_error("UnauthorizedOperation", "no", 403), "registering the AMI 'regiondag-.*the policy"),
        ("RegisterImage", ec2_error("AMIQuotaExceeded", "full"), "full; a quota of this account"),
        ("DescribeImages", ec2_error("UnauthorizedOperation", "no", 403), "looking for an AMI called"),
    ],
)
def test_refusals_say_what_was_being_done(aws, image, action, answer, message):
    aws.faults.append(failing(-1, answer, action))
    with pytest.raises(AwsError, match=message):
        upload(image)


def test_waiting_for_aws_to_complete_the_snapshot(aws, image):
    aws.looks_until_complete = 3
    upload(image)
    assert aws.count("DescribeSnapshots") == 4


def test_a_snapshot_that_ends_as_an_error_is_deleted_and_made_anew(aws, image):
    aws.looks_until_complete = 1000

    def break_it(call: Call) -> Answer | None:
        if call.action == "DescribeSnapshots":
            aws.set_state(the_snapshot(aws), "error")
        return None

    aws.faults.append(break_it)
    with pytest.raises(AwsError, match=r"snap-\w+ has become error; 4 blocks are at AWS"):
        upload(image)
    broken = the_snapshot(aws)
    aws.faults.clear()
    aws.looks_until_complete = 0
    said: list[str] = []
    upload(image, said)
    assert any(line == f"{broken} is error; the upload starts anew" for line in said)
    assert broken not in aws.ec2.snapshots
    assert aws.count("PutSnapshotBlock") == 8
    assert read_journal(journal_of(image)).leftovers == []


def test_a_snapshot_that_is_gone_is_made_anew(aws, image, monkeypatch):
    monkeypatch.setattr(snapshots, "SETTLING", 0.0)
    with_fault = failing(-1, ebs_error("AccessDeniedException"), "CompleteSnapshot")
    aws.faults.append(with_fault)
    with pytest.raises(AwsError):
        upload(image)
    aws.faults.clear()
    aws.ec2.snapshots.pop(the_snapshot(aws))
    upload(image)
    assert aws.count("StartSnapshot") == 2
    assert aws.count("PutSnapshotBlock") == 8


def test_the_journal_of_another_disk_is_not_used_and_its_snapshot_is_deleted(aws, image):
    aws.faults.append(failing(-1, ebs_error("AccessDeniedException"), "CompleteSnapshot"))
    with pytest.raises(AwsError):
        upload(image)
    aws.faults.clear()
    left = the_snapshot(aws)
    write_disk(image.disk, {1: os.urandom(BLOCK)}, 4 * BLOCK)
    write_tested(image, artifact.Tested(sha256_of(image.disk), MANIFEST.hash, "2026-11-22T11:00:00Z", ()))
    aws.calls.clear()
    upload(image)
    assert [call.number for call in aws.calls if call.action == "PutSnapshotBlock"] == [1]
    assert left not in aws.ec2.snapshots


def test_a_left_over_snapshot_that_cannot_be_deleted_is_no_reason_to_fail(aws, image):
    with open_journal(journal_of(image)) as journal:
        journal.append("begin", disk="ab" * 32, token="once", encryption="")  # noqa: S106
        journal.append("snapshot", id="snap-0123456789abcdef0")
    aws.faults.append(failing(1, ec2_error("UnauthorizedOperation", "no", 403), "DeleteSnapshot"))
    said: list[str] = []
    upload(image, said)
    assert "the next run tries again" in said[1]
    assert read_journal(journal_of(image)).leftovers == ["snap-0123456789abcdef0"]
    upload(image, name="again")
    assert read_journal(journal_of(image)).leftovers == []


def test_a_kill_between_the_request_and_its_answer_leaves_no_second_snapshot(aws, image):
    """The token is in the journal before the request, so that the next run gets the same snapshot."""

    def die(call: Call) -> Answer | None:
        return ebs_error("AccessDeniedException") if call.action == "PutSnapshotBlock" else None

    aws.faults.append(die)
    with pytest.raises(AwsError):
        upload(image)
    lines = journal_of(image).read_text().splitlines(keepends=True)
    assert [json.loads(line)["event"] for line in lines] == ["begin", "snapshot"]
    journal_of(image).write_text(lines[0])
    aws.faults.clear()
    upload(image)
    assert aws.count("StartSnapshot") == 2
    assert len(aws.ebs.snapshots) == 1
    # Another name changes the tags, for which the token cannot be used again.
    journal_of(image).write_text(lines[0])
    upload(image, name="other")
    assert len(aws.ebs.snapshots) == 2


def test_a_completion_whose_answer_was_lost(aws, image):
    aws.looks_until_complete = 3
    killed = failing(1, ec2_error("UnauthorizedOperation", status=403), "DescribeSnapshots")
    aws.faults.append(killed)
    with pytest.raises(AwsError):
        upload(image)
    events = [json.loads(line)["event"] for line in journal_of(image).read_text().splitlines()]
    assert events[-1] == "completing"
    upload(image)
    assert aws.count("CompleteSnapshot") == 2
    assert aws.count("PutSnapshotBlock") == 4


def test_a_completion_that_is_repeated_because_its_answer_was_lost(aws, image):
    def heard_but_not_answered(call: Call) -> Answer | None:
        if call.action == "CompleteSnapshot" and call.snapshot not in aws.completing:
            aws.completing[call.snapshot] = 2
            return ebs_error("InternalServerException", status=500)
        return None

    aws.faults.append(heard_but_not_answered)
    upload(image)
    assert aws.count("CompleteSnapshot") == 2


def test_a_snapshot_that_stays_pending(aws, image, monkeypatch):
    monkeypatch.setattr(snapshots, "PATIENCE", 0.0)
    aws.looks_until_complete = 1000
    with pytest.raises(AwsError, match=r"snap-\w+ has been pending at \d+% .*the same command goes on from there"):
        upload(image)
    aws.looks_until_complete = 0
    aws.completing = dict.fromkeys(aws.completing, 0)
    upload(image)
    assert aws.count("PutSnapshotBlock") == 4


def test_a_left_over_snapshot_that_an_ami_uses_is_none(aws, image):
    """Its AMI was registered, and a kill came before that was written down."""
    with open_journal(journal_of(image)) as journal:
        journal.append("begin", disk="ab" * 32, token="once", encryption="")  # noqa: S106
        journal.append("snapshot", id="snap-0123456789abcdef0")
    aws.faults.append(failing(1, ec2_error("InvalidSnapshot.InUse"), "DeleteSnapshot"))
    upload(image)
    assert read_journal(journal_of(image)).leftovers == []


def test_a_completion_that_aws_refuses_is_no_success(aws, image):
    aws.faults.append(failing(1, ebs_error("ValidationException", "wrong checksum"), "CompleteSnapshot"))
    with pytest.raises(AwsError, match=r"completing snap-\w+: AWS answers ValidationException: wrong checksum"):
        upload(image)


def test_a_full_disk_while_journaling_is_explained(aws, image, monkeypatch):
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if b'"block"' in data:
            real(descriptor, data[:20])
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(BakeError, match=rf"{REGION}\.jsonl: cannot be written: No space left on device; .*Make room"):
        upload(image)
    monkeypatch.setattr(os, "write", real)
    upload(image)
    assert same_bytes(aws, the_snapshot(aws), image)


def test_two_uploads_of_one_image_at_a_time_are_refused(aws, image):
    with open_journal(journal_of(image)), pytest.raises(UsageError, match=f"uploads this image to {REGION}"):
        upload(image)


def test_a_dry_run_changes_nothing(aws, image, capsys):
    argv = ["bake", "ami", str(image.folder), "--region", REGION, "--dry-run"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert f"AMI       {NAME} in {REGION}" in out
    assert "to send   4 of 4 blocks of 512 KiB (2 MiB)" in out
    assert "regiondag:manifest=" in out
    assert aws.names() == ["DescribeImages"]
    assert not journal_of(image).exists()
    ami = upload(image)
    assert describe_ami(image, REGION, None, print) == f"{ami} in {REGION} is made of this image already; nothing to do"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--name", "x"], 2, "3 to 128 characters"),
        (["--kms-key", "k"], 2, "takes the ARN"),
        (["--connections", "0"], 2, "legal are 1 to 256"),
        (["--region", "no/where"], 8, "cannot use AWS's ec2"),
    ],
)
def test_mistakes_of_the_command_line(aws, image, capsys, arguments, code, message):
    assert main(["bake", "ami", str(image.folder), "--region", REGION, *arguments]) == code
    assert message in capsys.readouterr().err


def test_without_credentials(aws, image, capsys, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    assert main(["bake", "ami", str(image.folder), "--region", REGION]) == 8
    assert "check with: aws sts get-caller-identity" in capsys.readouterr().err


def test_an_answer_that_is_not_from_aws(aws, image, capsys):
    aws.faults.append(lambda call: (407, {"Content-Type": "text/html"}, b"<html><br>log in first</html>"))
    assert main(["bake", "ami", str(image.folder), "--region", REGION]) == 8
    assert "check the network and try again" in capsys.readouterr().err


def test_without_a_network(aws, image, capsys, monkeypatch):
    monkeypatch.setattr(aws_module, "RETRIES", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert main(["bake", "ami", str(image.folder), "--region", REGION]) == 8
    assert "looking for an AMI called" in capsys.readouterr().err


def test_without_a_region(aws, image, capsys):
    assert main(["bake", "ami", str(image.folder)]) == 8
    assert "--region eu-central-1" in capsys.readouterr().err


def command(aws: FakeAws, image: DiskImage) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.Popen(
        [sys.executable, "-m", "regiondag", "bake", "ami", str(image.folder), "--region", REGION, "--connections", "3"],
        env={**kept, **environment(aws.url), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def wait_for_blocks(aws: FakeAws, number: int) -> None:
    until = time.monotonic() + 60
    while aws.count("PutSnapshotBlock") < number:
        assert time.monotonic() < until
        time.sleep(0.005)


def test_the_policy_allows_every_call_and_nothing_else(aws, image):
    """All calls there are: an upload that ends badly, another disk in its place, a second look."""
    aws.faults.append(failing(-1, ebs_error("InternalServerException", status=500), "CompleteSnapshot"))
    with pytest.raises(AwsError):
        upload(image)
    aws.faults.clear()
    write_disk(image.disk, {1: b"x"}, BLOCK * 2)
    write_tested(image, artifact.Tested(sha256_of(image.disk), MANIFEST.hash, "2026-11-22T11:00:00Z", ()))
    upload(image)
    upload(image)
    check_policy(POLICY, {call.name for call in aws.calls}, {"ec2:CreateTags"})
    check_wide_resources(POLICY)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_upload_sends_only_the_rest(aws, tmp_path, how):
    image = many_blocks(tmp_path)
    gate = threading.Event()  # closed after eight blocks, so that the stop comes in mid-upload on any machine

    def hold(call: Call) -> Answer | None:
        if call.action == "PutSnapshotBlock" and aws.count("PutSnapshotBlock") > 8:
            gate.wait(60)
        return None

    aws.faults.append(hold)
    process = command(aws, image)
    wait_for_blocks(aws, 10)
    time.sleep(0.3)  # what was acknowledged is written down
    process.send_signal(how)
    _, error = process.communicate(timeout=60)
    gate.set()
    if how is signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130
        assert "stopped; " in error
        assert "the same command goes on from there" in error
        assert "Traceback" not in error
    attempt = read_journal(journal_of(image)).attempt
    assert attempt
    known = set(attempt.blocks)
    assert 5 <= len(known) < MANY
    aws.faults.clear()
    aws.calls.clear()
    process = command(aws, image)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    sent = [call.number for call in aws.calls if call.action == "PutSnapshotBlock"]
    assert sorted(sent) == sorted({2 * n for n in range(MANY)} - known)
    assert f"{len(known)} are there already" in error
    assert out.strip() in aws.ec2.amis
    assert aws.count("StartSnapshot") == 0
    assert same_bytes(aws, the_snapshot(aws), image)
