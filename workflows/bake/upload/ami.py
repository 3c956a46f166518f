"""From a tested image to an AMI: check, upload as a snapshot, register. Run again, it goes on where it stopped."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regiondag.bake.artifact import DiskImage
from regiondag.bake.upload import register
from regiondag.bake.upload.disk_blocks import Disk, read_disk
from regiondag.bake.upload.journal import UploadJournal, open_journal, read_journal
from regiondag.bake.upload.snapshot import Encryption, SnapshotTags, Tell, Uploader
from regiondag.errors import AwsError, BakeError, UsageError
from regiondag.util import aws

MOST_CONNECTIONS = 256
PLAIN = Encryption()


@dataclass(frozen=True, slots=True)
class _Order:
    """A tested image, and what is to become of it."""

    image: DiskImage
    disk: Disk
    region: str
    name: str
    encryption: Encryption

    @property
    def journal(self) -> Path:
        """Where its upload is written down."""
        return self.image.folder / "ami" / f"{self.region}.jsonl"

    @property
    def labels(self) -> SnapshotTags:
        """What snapshot and AMI are labelled with."""
        manifest = self.image.manifest
        tags = register.ami_tags(self.name, manifest, self.disk.sha256)
        return SnapshotTags(register.describe_image(manifest), tags)


def make_ami(
    image: DiskImage,
    region: str | None,
    name: str | None,
    connections: int,
    tell: Tell,
    encryption: Encryption = PLAIN,
) -> str:
    """Upload a tested image, register it and return the AMI's id; the id of the one that exists, if there is one.

    `region` None means the environment's or the profile's, `name` None the default name.
    """
    if not 1 <= connections <= MOST_CONNECTIONS:
        raise UsageError(f"--connections {connections}: legal are 1 to {MOST_CONNECTIONS}")
    with closing(aws.client("ec2", region)) as ec2, closing(aws.client("ebs", region, connections)) as ebs:
        order = _order(image, ec2.meta.region_name, name, encryption, tell)
        found = _find_existing(order, ec2)
        if found:
            tell(f"{found} is made of this image already; nothing to do")
        else:
            found = _upload_and_register(order, ebs, ec2, connections, tell)
        register.wait_until_available(ec2, found)
        return found


def describe_ami(
    image: DiskImage, region: str | None, name: str | None, tell: Tell, encryption: Encryption = PLAIN
) -> str:
    """Return what `make_ami` would do. It asks AWS about the name, and changes nothing."""
    with closing(aws.client("ec2", region)) as ec2:
        order = _order(image, ec2.meta.region_name, name, encryption, tell)
        found = _find_existing(order, ec2)
    if found:
        return f"{found} in {order.region} is made of this image already; nothing to do"
    attempt = read_journal(order.journal).attempt
    sent = attempt.blocks if attempt and attempt.same(order.disk.sha256, encryption.text) else {}
    missing = sum(sent.get(number) != sha256 for number, sha256 in order.disk.blocks.items())
    encrypted = f"encrypted ({encryption.text})" if encryption.wanted else "encrypted only if the account does so"
    lines = [
        f"AMI       {order.name} in {order.region}",
        f"snapshot  {order.disk.gib} GiB, {encrypted}",
        f"to send   {missing:,} of {len(order.disk.blocks):,} blocks of 512 KiB ({order.disk.mib:,.0f} MiB)",
        *(f"tag       {key}={value}" for key, value in order.labels.tags.items()),
    ]
    return "\n".join(lines)


def _order(image: DiskImage, region: str, name: str | None, encryption: Encryption, tell: Tell) -> _Order:
    """Check all that can be checked here, from the fastest to the slowest."""
    chosen = register.ami_name(name, image.manifest)
    encryption.check(region)
    return _Order(image, check_tested(image, tell), region, chosen, encryption)


def check_tested(image: DiskImage, tell: Tell) -> Disk:
    """Return the image's disk; BakeError unless exactly this disk has passed `regiondag bake test`."""
    tested = image.tested()
    advice = f"an image that is not seen working is not uploaded; run: regiondag bake test {image.folder}"
    if tested is None:
        raise BakeError(f"{image.folder}: no record of a passed test (tested.json); {advice}")
    if tested.manifest_hash != image.manifest.hash:
        raise BakeError(
            f"{image.folder}: the test of {tested.date} was of manifest {tested.manifest_hash[:12]}, "
            f"and this is {image.manifest.hash[:12]}; {advice}"
        )
    tell(f"comparing {image.disk} with the one that was tested")
    disk = read_disk(image.disk)
    if disk.sha256 != tested.disk_sha256:
        raise BakeError(
            f"{image.disk}: it has changed since its test of {tested.date} (sha256 {tested.disk_sha256[:12]} then, "
            f"{disk.sha256[:12]} now); {advice}"
        )
    return disk


def _find_existing(order: _Order, ec2: Any) -> str | None:
    found = register.find_ami(ec2, order.name)
    register.check_free(found, order.name, order.image.manifest, order.encryption.wanted)
    return found.id if found else None


def _upload_and_register(order: _Order, ebs: Any, ec2: Any, connections: int, tell: Tell) -> str:
    with open_journal(order.journal) as journal:
        try:
            snapshot = Uploader(ebs, ec2, journal, connections, tell).upload(order.disk, order.encryption, order.labels)
        except KeyboardInterrupt:
            tell(f"stopped; {_sent(journal)}")
            raise
        except AwsError as error:
            raise AwsError(f"{error}; {_sent(journal)}") from None
        tags = order.labels.tags
        found = register.register(ec2, register.register_arguments(order.name, order.image.manifest, tags, snapshot))
        journal.append("registered", image=found)
    tell(f"{found} is registered in {order.region} as {order.name!r}, from {snapshot}")
    return found


def _sent(journal: UploadJournal) -> str:
    attempt = journal.uploads.attempt
    if not attempt or not attempt.blocks:
        return "nothing is uploaded yet; run the same command again"
    return f"{len(attempt.blocks):,} blocks are at AWS, which keeps them for a day: the same command goes on from there"
