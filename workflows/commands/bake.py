"""`regiondag bake`: the GPU worker's image, from nothing to an AMI."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnlib.util.terminal import tell
from regiondag.commands._verbs import add_verb, number, read_checked, run_verb
from regiondag.errors import UsageError
from regiondag.pool.suites import SUITES

HELP = "bake the GPU worker's disk image, boot it to see it work, make an AMI of it"

DESCRIPTION = """\
One recipe (ami/provision) makes the worker's image; the same files make the embedded pool's root folder.
`image` writes a raw disk that boots by BIOS and by UEFI, `test` boots it here and waits until it has joined a pool and
run a job, `ami` uploads a tested image to EC2; `sign`, `verify` and `changes` are for those who answer for images.
Only `ami` needs an AWS account."""

EPILOG = """examples:
  regiondag bake image
  regiondag bake image --driver auto --for g6.xlarge p5.48xlarge
  regiondag bake image --max-age 7d
  regiondag bake test
  regiondag bake sign --key ~/.ssh/id_ed25519
  regiondag bake ami --region eu-central-1"""

DRIVERS = ("none", "closed", "open", "auto")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their arguments."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    image = add_verb(verbs, "image", _image, "make the disk image, or find it in the cache, and print its folder")
    image.add_argument(
        "--suite", choices=SUITES, default="trixie", help="Debian release (default trixie: HTCondor 23.9)"
    )
    image.add_argument(
        "--driver", choices=DRIVERS, default="none", help="NVIDIA's kernel module; auto: as --for needs (default none)"
    )
    _add_types(image, "the driver must drive")
    image.add_argument(
        "--apt-source",
        type=Path,
        metavar="FILE",
        help="a further apt source for the image, such as NVIDIA's: NAME.sources with its key in it, or NAME.list",
    )
    image.add_argument("--skip-pci-option", action="store_true", help="leave out NVreg_CheckPCIConfigSpace=0")
    image.add_argument("--rebuild", action="store_true", help="bake it anew, with today's packages")
    image.add_argument(
        "--max-age", type=_duration, metavar="AGE", help="the same where the one in the cache is older, such as 7d"
    )

    test = add_verb(verbs, "test", _test, "boot an image here and put it through a worker's life")
    _add_image(test)
    test.add_argument("--acceleration", choices=("kvm", "tcg"), help="of qemu (default: kvm where it works)")
    test.add_argument(
        "--manager-suite", choices=SUITES, help="Debian release of the manager to join (default: the image's own)"
    )

    changes = add_verb(verbs, "changes", _changes, "print what differs between two images, package by package")
    changes.add_argument("old", type=Path, metavar="OLD", help="folder of an image")
    _add_image(changes)

    sign = add_verb(verbs, "sign", _sign, "sign an image's digests, bill and test by an SSH key")
    _add_image(sign)
    sign.add_argument(
        "--key", type=Path, required=True, metavar="KEY", help="an SSH key, private, or public of an agent's"
    )

    verify = add_verb(
        verbs, "verify", _verify, "print who signed an image; exit code 7 if nobody did, or it has changed"
    )
    _add_image(verify)
    verify.add_argument(
        "--signers",
        type=Path,
        required=True,
        metavar="FILE",
        help="lines of NAME KEYTYPE KEY, as ssh-keygen -Y has them",
    )

    ami = add_verb(verbs, "ami", _ami, "upload a tested image and register it as an AMI")
    _add_image(ami)
    _add_types(ami, "the image must drive, else no AMI is made")
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


def _add_types(parser: argparse.ArgumentParser, purpose: str) -> None:
    parser.add_argument("--for", dest="types", nargs="+", default=[], metavar="TYPE", help=f"instance types {purpose}")
    parser.add_argument("--fleet", type=Path, metavar="FILE", help="a fleet.yaml, for the same of its instance types")


def _duration(text: str) -> int:
    from regiondag.util.schema import DURATION

    return read_checked(text, DURATION)


def _default_image() -> Path:
    from regiondag.bake.image import ImageWishes, image_path

    path = image_path(ImageWishes())
    if not path.exists():
        raise UsageError("no image is baked by today's recipe; first: regiondag bake image")
    return path


def _image(arguments: argparse.Namespace) -> int:
    from regiondag.bake.driver_choice import list_types, settle_driver
    from regiondag.bake.image import ImageWishes, check_apt_source, ensure_disk_image

    source = check_apt_source(arguments.apt_source) if arguments.apt_source else None
    asked = ImageWishes(arguments.suite, arguments.driver, not arguments.skip_pci_option, apt_source=source)
    wishes = settle_driver(asked, list_types(arguments.types, arguments.fleet))
    print(ensure_disk_image(wishes, tell, arguments.rebuild, arguments.max_age).folder)
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


def _changes(arguments: argparse.Namespace) -> int:
    from regiondag.bake.artifact import read_disk_image
    from regiondag.bake.changes import list_changes

    old, new = (read_disk_image(path).manifest for path in (arguments.old, arguments.image or _default_image()))
    for line in list_changes(old, new):
        print(line)
    return 0


def _sign(arguments: argparse.Namespace) -> int:
    from regiondag.bake.artifact import read_disk_image
    from regiondag.bake.signature import sign

    print(sign(read_disk_image(arguments.image or _default_image()), arguments.key))
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from regiondag.bake.artifact import read_disk_image
    from regiondag.bake.signature import verify

    image = read_disk_image(arguments.image or _default_image())
    print(f"signed by {verify(image, arguments.signers)}: {image.folder}")
    return 0


def _ami(arguments: argparse.Namespace) -> int:
    from regiondag.bake.artifact import read_disk_image
    from regiondag.bake.driver_choice import check_types, list_types
    from regiondag.bake.upload.ami import describe_ami, make_ami
    from regiondag.bake.upload.snapshot import Encryption

    image = read_disk_image(arguments.image or _default_image())
    check_types(image.manifest, list_types(arguments.types, arguments.fleet))
    encryption = Encryption(arguments.encrypted or bool(arguments.kms_key), arguments.kms_key)
    if arguments.dry_run:
        print(describe_ami(image, arguments.region, arguments.name, tell, encryption))
    else:
        print(make_ami(image, arguments.region, arguments.name, arguments.connections, tell, encryption))
    return 0
