"""The peer of ami_upload: the loop that one writes first. Also counts what a snapshot has got.

usage: ami_upload_peer.py DISK REGION
       ami_upload_peer.py count REGION
"""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import boto3

BLOCK = 524288


def upload(path: Path, region: str) -> str:
    """Upload the blocks one after the other, and register."""
    ebs, ec2 = boto3.client("ebs", region_name=region), boto3.client("ec2", region_name=region)
    snapshot = ebs.start_snapshot(VolumeSize=-(-path.stat().st_size // 2**30), Description="peer")["SnapshotId"]
    digests = []
    with path.open("rb") as file:
        for number in range(-(-path.stat().st_size // BLOCK)):
            block = file.read(BLOCK).ljust(BLOCK, b"\0")
            digest = hashlib.sha256(block).digest()
            digests.append(digest)
            ebs.put_snapshot_block(
                SnapshotId=snapshot,
                BlockIndex=number,
                BlockData=block,
                DataLength=BLOCK,
                Checksum=base64.b64encode(digest).decode(),
                ChecksumAlgorithm="SHA256",
            )
    ebs.complete_snapshot(
        SnapshotId=snapshot,
        ChangedBlocksCount=len(digests),
        Checksum=base64.b64encode(hashlib.sha256(b"".join(digests)).digest()).decode(),
        ChecksumAlgorithm="SHA256",
        ChecksumAggregationMethod="LINEAR",
    )
    ec2.get_waiter("snapshot_completed").wait(SnapshotIds=[snapshot])
    disk = {"DeviceName": "/dev/xvda", "Ebs": {"SnapshotId": snapshot, "VolumeType": "gp3"}}
    return str(ec2.register_image(Name="peer", RootDeviceName="/dev/xvda", BlockDeviceMappings=[disk])["ImageId"])


def count(region: str) -> int:
    """Return how many blocks the one uploaded snapshot has; moto has others, of the images that it invents."""
    ebs, ec2 = boto3.client("ebs", region_name=region), boto3.client("ec2", region_name=region)
    own = ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]
    (uploaded,) = [one["SnapshotId"] for one in own if not one["Description"].startswith("Auto-created")]
    return len(ebs.list_snapshot_blocks(SnapshotId=uploaded)["Blocks"])


if __name__ == "__main__":
    what, where = sys.argv[1:]
    print(count(where) if what == "count" else upload(Path(what), where))
