"""A disk becomes an EBS snapshot through the EBS direct API: no bucket, no instance, only the blocks that hold data.

Each block travels with its sha256, which AWS checks, and so does the whole. What AWS has acknowledged is in the
journal, so that an upload that was stopped, even by a kill, sends only the rest.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from nnlib.util.terminal import show_progress
from regiondag.bake.upload.disk_blocks import BLOCK, Disk, read_block
from regiondag.bake.upload.journal import UploadAttempt, UploadJournal
from regiondag.bake.upload.parallel import in_parallel
from regiondag.errors import AwsError, BakeError, UsageError
from regiondag.util import aws

Tell = Callable[[str], None]

TIMEOUT = 24 * 60  # minutes after the last block until AWS gives an unfinished snapshot up
SETTLING = 150.0  # seconds in which parts of AWS may not know a new snapshot yet
PAUSE = 2.0  # seconds between two tries of a block meanwhile
POLL = 5.0  # seconds between two looks at a snapshot that AWS completes
PATIENCE = 3600.0  # seconds without any progress of it

_KEY = re.compile(r"arn:aws[a-z-]*:kms:([a-z0-9-]+):[0-9]{12}:key/[A-Za-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Encryption:
    """Whether the snapshot is encrypted, and by which KMS key; without one AWS takes the account's default key."""

    wanted: bool = False
    key: str = ""

    @property
    def text(self) -> str:
        """How the journal names it."""
        return self.key or ("default key" if self.wanted else "")

    @property
    def arguments(self) -> dict[str, object]:
        """What StartSnapshot is told. Nothing at all unless it is wanted: the account may encrypt by default."""
        if not self.wanted:
            return {}
        return {"Encrypted": True, **({"KmsKeyArn": self.key} if self.key else {})}

    def check(self, region: str) -> None:
        """Raise UsageError for a key that AWS would refuse after all the work."""
        found = _KEY.fullmatch(self.key)
        if self.key and not found:
            raise UsageError(
                f"--kms-key {self.key!r}: the EBS direct API takes the ARN of a key, not an id or an alias, "
                f"for instance arn:aws:kms:{region}:111122223333:key/...; see: aws kms describe-key --key-id alias/NAME"
            )
        if found and found[1] != region:
            raise UsageError(f"--kms-key {self.key!r}: a key of {found[1]}, but the AMI is made in {region}")


@dataclass(frozen=True, slots=True)
class SnapshotTags:
    """What a snapshot is labelled with from its first moment on."""

    description: str
    tags: Mapping[str, str]


class Uploader:
    """Uploads one disk to one region."""

    def __init__(self, ebs: Any, ec2: Any, journal: UploadJournal, connections: int, tell: Tell) -> None:
        self.ebs = ebs
        self.ec2 = ec2
        self.journal = journal
        self.connections = connections
        self.tell = tell

    def upload(self, disk: Disk, encryption: Encryption, labels: SnapshotTags) -> str:
        """Return the id of a completed snapshot that holds the disk."""
        if not self._can_go_on(disk, encryption):
            self._begin(disk, encryption)
        self._drop_leftovers()
        if not self._attempt.snapshot:
            self._start(disk, encryption, labels)
        if not self._attempt.completing or self._state()[0] != "completed":
            self._send(disk)
            self._complete(disk)
            self._wait()
        return self._attempt.snapshot

    def _drop_leftovers(self) -> None:
        """Delete what earlier attempts have left; a snapshot that cannot be deleted now is left for the next run."""
        for snapshot in tuple(self.journal.uploads.leftovers):
            try:
                with aws.explain_errors(f"deleting {snapshot}, which an earlier upload has left unfinished"):
                    self._delete(snapshot)
            except AwsError as error:
                self.tell(f"{error}; the next run tries again")
            else:
                self.journal.append("dropped", id=snapshot)

    def _delete(self, snapshot: str) -> None:
        try:
            self.ec2.delete_snapshot(SnapshotId=snapshot)
            self.tell(f"deleted {snapshot}, which an earlier upload has left unfinished")
        except Exception as error:
            # In use: its AMI was registered, and a kill came before that could be written down.
            if aws.error_code(error) not in ("InvalidSnapshot.NotFound", "InvalidSnapshot.InUse"):
                raise

    @property
    def _attempt(self) -> UploadAttempt:
        attempt = self.journal.uploads.attempt
        if attempt is None:
            raise AssertionError("no attempt has begun")
        return attempt

    @property
    def _settling(self) -> bool:
        """Whether the snapshot is so young that parts of AWS may not know it."""
        return time.time() < self._attempt.started + SETTLING

    def _can_go_on(self, disk: Disk, encryption: Encryption) -> bool:
        """Whether the journal's last attempt is of this disk, and its snapshot still takes blocks or is complete."""
        attempt = self.journal.uploads.attempt
        if attempt is None or not attempt.same(disk.sha256, encryption.text):
            return False
        if not attempt.snapshot:
            return True
        state, reason = self._state()
        if state == "pending" or (state == "completed" and attempt.completing):
            return True
        if state == "gone" and self._settling:
            return True
        self.tell(f"{attempt.snapshot} is {state}{reason}; the upload starts anew")
        return False

    def _begin(self, disk: Disk, encryption: Encryption) -> None:
        self.journal.append("begin", disk=disk.sha256, token=str(uuid.uuid4()), encryption=encryption.text)

    def _start(self, disk: Disk, encryption: Encryption, labels: SnapshotTags) -> None:
        """Ask for a snapshot. The token is in the journal already: asked again after a kill, AWS gives the same one."""
        arguments = {
            "VolumeSize": disk.gib,
            "Description": labels.description,
            "Tags": aws.tag_list(labels.tags),
            "Timeout": TIMEOUT,
            **encryption.arguments,
        }
        with aws.explain_errors("starting a snapshot"):
            try:
                answer = self.ebs.start_snapshot(ClientToken=self._attempt.token, **arguments)
            except Exception as error:
                if aws.error_code(error) != "ConflictException":
                    raise
                # The token was used for a snapshot with other labels, such as another name.
                self._begin(disk, encryption)
                answer = self.ebs.start_snapshot(ClientToken=self._attempt.token, **arguments)
        self.journal.append("snapshot", id=answer["SnapshotId"])

    def _send(self, disk: Disk) -> None:
        attempt = self._attempt
        missing = [number for number, sha256 in disk.blocks.items() if attempt.blocks.get(number) != sha256]
        done = len(disk.blocks) - len(missing)
        self.tell(
            f"uploading {len(missing):,} blocks of 512 KiB to {attempt.snapshot} "
            f"({disk.gib} GiB, zeros left out); {done:,} are there already"
        )
        with disk.path.open("rb") as file, show_progress(f"uploading to {attempt.snapshot}") as show:

            def send(number: int) -> None:
                # The descriptor is looked up for each block: once the file is closed, its number may be another's.
                self._put(number, read_block(file.fileno(), number), disk)

            show(done, len(disk.blocks))
            with closing(in_parallel(send, missing, self.connections)) as sent:
                for number, _ in sent:
                    self.journal.append("block", number=number, sha256=disk.blocks[number])
                    done += 1
                    show(done, len(disk.blocks))

    def _put(self, number: int, block: bytes, disk: Disk) -> None:
        digest = hashlib.sha256(block).digest()
        if digest.hex() != disk.blocks[number]:
            raise BakeError(f"{disk.path} was changed while it was uploaded; bake and test the image again")
        snapshot = self._attempt.snapshot
        with aws.explain_errors(f"writing block {number} of {snapshot}"):
            while True:
                try:
                    self.ebs.put_snapshot_block(
                        SnapshotId=snapshot,
                        BlockIndex=number,
                        BlockData=block,
                        DataLength=BLOCK,
                        Checksum=base64.b64encode(digest).decode(),
                        ChecksumAlgorithm="SHA256",
                    )
                    return
                except Exception as error:
                    if aws.error_code(error) != "ResourceNotFoundException" or not self._settling:
                        raise
                time.sleep(PAUSE)

    def _complete(self, disk: Disk) -> None:
        attempt = self._attempt
        asked_before = attempt.completing
        if not asked_before:
            self.journal.append("completing")
        with aws.explain_errors(f"completing {attempt.snapshot}"):
            try:
                self.ebs.complete_snapshot(
                    SnapshotId=attempt.snapshot,
                    ChangedBlocksCount=len(disk.blocks),
                    Checksum=linear_checksum(disk.blocks),
                    ChecksumAlgorithm="SHA256",
                    ChecksumAggregationMethod="LINEAR",
                )
            except Exception as error:
                # An earlier request may have been heard whose answer was lost; then waiting shows how it ends.
                asked_before = asked_before or aws.was_repeated(error)
                if not asked_before or aws.error_code(error) not in ("ValidationException", "ConflictException"):
                    raise

    def _wait(self) -> None:
        """Wait until AWS has put the blocks together."""
        snapshot = self._attempt.snapshot
        seen, until = "", time.monotonic() + PATIENCE
        with show_progress(f"AWS completes {snapshot}") as show:
            while True:
                state, progress = self._state()
                if state == "completed":
                    return
                if state != "pending" and not (state == "gone" and self._settling):
                    raise AwsError(f"{snapshot} has become {state}{progress}")
                if progress != seen:
                    seen, until = progress, time.monotonic() + PATIENCE
                if time.monotonic() > until:
                    raise AwsError(f"{snapshot} has been pending at {progress or '0%'} for {PATIENCE / 60:.0f} minutes")
                percent = progress.rstrip("%")
                show(int(percent) if percent.isdecimal() else 0, 100)
                time.sleep(POLL)

    def _state(self) -> tuple[str, str]:
        """Return pending, completed, error or gone, and AWS's words: the progress in percent, or the reason."""
        snapshot = self._attempt.snapshot
        with aws.explain_errors(f"asking for the state of {snapshot}"):
            try:
                raw = self.ec2.describe_snapshots(SnapshotIds=[snapshot])["Snapshots"][0]
            except Exception as error:
                if aws.error_code(error) != "InvalidSnapshot.NotFound":
                    raise
                return "gone", ""
        if raw["State"] == "pending":
            return "pending", raw.get("Progress") or ""
        return raw["State"], f" ({raw['StateMessage']})" if raw.get("StateMessage") else ""


def linear_checksum(blocks: Mapping[int, str]) -> str:
    """Return the checksum over the blocks' checksums in order, as CompleteSnapshot takes it.

    What is joined are the 32 bytes of each, not their Base64: so does coldsnap, which comes from AWS.
    """
    joined = b"".join(bytes.fromhex(blocks[number]) for number in sorted(blocks))
    return base64.b64encode(hashlib.sha256(joined).digest()).decode()
