"""`regiondag bake`: the GPU worker's image, from nothing to an AMI."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnlib.util.terminal import tell
from regiondag.commands._verbs import add_verb, number, run_verb
from regiondag.errors import UsageError
from regiondag.pool.suites import SUITES

HELP = "bake the GPU worker's disk image, boot it to see it work, make an AMI of it"

DESCRIPTION = """\
One recipe (ami/provision) makes the worker's image; the same files make the embedded pool's root folder.
`image` writes a raw disk that boots by BIOS and by UEFI, `test` boots it here and waits until it has joined a pool and
run a job, `ami` uploads a tested image to EC2. Only `ami` needs an AWS account."""

EPILOG = """examples:
  regiondag bake image
  regiondag bake test
  regiondag bake ami --region eu-central-1"""


DRIVERS = ("none", "closed", "open")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their arguments."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    image = add_verb(verbs, "image", _image, "make the disk image, or find it in the cache, and print its folder")
    image.add_argument(
        "--suite", choices=SUITES, default="trixie", help="Debian release (default trixie: HTCondor 23.9)"
    )
    image.add_argument("--driver", choices=DRIVERS, default="none", help="NVIDIA's kernel module (default none)")
    image.add_argument("--skip-pci-option", action="store_true", help="leave out NVreg_CheckPCIConfigSpace=0")
    image.add_argument("--rebuild", action="store_true", help="bake it anew, with today's packages")

    test = add_verb(verbs, "test", _test, "boot an image here and put it through a worker's life")
    _add_image(test)
    test.add_argument("--acceleration", choices=("kvm", "tcg"), help="of qemu (default: kvm where it works)")
    test.add_argument(
        "--manager-suite", choices=SUITES, help="Debian release of the manager to join (default: the image's own)"
    )

    ami = add_verb(verbs, "ami", _ami, "upload a tested image and register it as an AMI")
    _add_image(ami)
    ami.add_argument("--region", help="AWS region (default: that of the environment or the profile)")
    ami.add_argument("--name", help="name of the AMI (default: regiondag-SUITE-DRIVER-HASH)")
    ami.add_argument(
        "--connections",
        type=number(int),
        default=16,
        metavar="N",
        help="blocks uploaded at a time (default 16)",
    )
    ami.add_argument("--encrypted", action="store_true", help="encrypt the snapshot with the account's default key")
    ami.add_argument("--kms-key", metavar="ARN", default="", help="encrypt it with this KMS key")
    ami.add_argument("--dry-run", action="store_true", help="print what would be made; upload and register nothing")


run = run_verb


def _add_image(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "image",
        type=Path,
        nargs="?",
        metavar="IMAGE",
        help="folder that `regiondag bake image` printed (default: the one that it makes without options)",
    )


def _default_image() -> Path:
    from regiondag.bake.image import ImageWishes, image_path

    path = image_path(ImageWishes())
    if not path.exists():
        raise UsageError("no image is baked by today's recipe; first: regiondag bake image")
    return path


def _image(arguments: argparse.Namespace) -> int:
    from regiondag.bake.image import ImageWishes, ensure_disk_image

    wishes = ImageWishes(arguments.suite, arguments.driver, not arguments.skip_pci_option)
    print(ensure_disk_image(wishes, tell, arguments.rebuild).folder)
    return 0


def _test(arguments: argparse.Namespace) -> int:
    from regiondag.bake.artifact import read_disk_image
    from regiondag.bake.boot.boot_test import boot_test

    image = read_disk_image(arguments.image or _default_image())
    tested = boot_test(image, tell, arguments.acceleration, arguments.manager_suite)
    for boot in tested.boots:
        print(" ".join(f"{name}={value}" for name, value in boot.items()))
    tell(f"passed; it is written down in {image.folder}/tested.json")
    return 0


def _ami(arguments: argparse.Namespace) -> int:
    from regiondag.bake.artifact import read_disk_image
    from regiondag.bake.upload.ami import describe_ami, make_ami
    from regiondag.bake.upload.snapshot import Encryption

    image = read_disk_image(arguments.image or _default_image())
    encryption = Encryption(arguments.encrypted or bool(arguments.kms_key), arguments.kms_key)
    if arguments.dry_run:
        print(describe_ami(image, arguments.region, arguments.name, tell, encryption))
    else:
        print(make_ami(image, arguments.region, arguments.name, arguments.connections, tell, encryption))
    return 0
