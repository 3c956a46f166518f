"""`regiondag bake test`: start the test in a network of its own, keep its record.

The network holds three: a manager with an embedded pool's root folder, a stand-in for EC2's metadata service, and the
machine under test. Nothing of it can be reached from outside, and nothing outside from it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from nnlib.contract import sha256_of
from regiondag.bake.artifact import TESTED, DiskImage, Tested, write_tested
from regiondag.bake.boot.machine import TOOLS, Acceleration, AccelerationError, best_acceleration
from regiondag.bake.boot.scenario import BootPlan
from regiondag.bake.contents import find_missing
from regiondag.errors import BakeError
from regiondag.pool.rootfs import ensure_image
from regiondag.pool.rootfs_build import Tell, catch_interrupts, install_tools
from regiondag.pool.sandbox import detect_mode
from regiondag.pool.suites import SUITES
from regiondag.util.user_dirs import cache_dir

KILLED_SECONDS = 15


def boot_test(
    image: DiskImage,
    tell: Tell,
    acceleration: Acceleration | None = None,
    manager_suite: str | None = None,
    worker: Mapping[str, object] | None = None,
) -> Tested:
    """Boot `image` twice, by BIOS and by UEFI, and put it through a worker's life; write and return the record.

    `worker` changes what its user data says. Raises BakeError with the reason where the image is no good.
    """
    install_tools([*TOOLS, "bwrap", "nsenter", "debugfs"])
    detect_mode()
    if missing := find_missing(image.disk):
        raise BakeError(f"{image.disk} lacks {', '.join(missing)}; bake it again with: regiondag bake image --rebuild")
    suite = manager_suite or image.manifest.suite
    check_series(image, suite)
    ensure_image(suite, tell)
    (image.folder / TESTED).unlink(missing_ok=True)
    digest = sha256_of(image.disk)
    plan = BootPlan(str(image.disk.resolve()), suite, acceleration or best_acceleration(), worker=worker or {})
    with catch_interrupts():
        try:
            boots = _boots(image, plan)
        except AccelerationError as error:
            if acceleration:
                raise BakeError(f"{error}; without --acceleration its processors are emulated then") from None
            tell(f"{error}; its processors are emulated now")
            boots = _boots(image, replace(plan, acceleration="tcg"))
    record = Tested(digest, image.manifest.hash, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), tuple(boots))
    write_tested(image, record)
    return record


def _boots(image: DiskImage, plan: BootPlan) -> list[dict[str, object]]:
    """Carry out a plan; return what each boot came to."""
    with _work_folder(image) as work:
        (work / "plan.json").write_text(json.dumps(asdict(plan)), encoding="utf-8")
        _run(work)
        boots: list[dict[str, object]] = json.loads((work / "result.json").read_text(encoding="utf-8"))
    return boots


def check_series(image: DiskImage, suite: str) -> None:
    """Refuse a manager that this image would refuse: a worker of another series advertises, and never matches."""
    if not image.manifest.htcondor.startswith(f"{SUITES[suite]}."):
        raise BakeError(
            f"this image has HTCondor {image.manifest.htcondor}, and the manager of {suite} {SUITES[suite]}: its "
            f"workers would refuse to join. Bake one of the manager's series: regiondag bake image --suite {suite}"
        )


def unshare_argv(user_id: int) -> list[str]:
    """Return the call that gives a program a network and processes of its own; all of them end with it."""
    user = [] if user_id == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--pid", "--fork", "--kill-child=KILL", "--mount", "--mount-proc", "--"]


def _run(work: Path) -> None:
    argv = [*unshare_argv(os.geteuid()), sys.executable, "-m", "regiondag.bake.boot.scenario", str(work / "plan.json")]
    said: list[str] = []
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        assert process.stderr  # noqa: S101 - for mypy: a pipe
        try:
            for line in process.stderr:
                if line.startswith("["):
                    print(line, end="", file=sys.stderr, flush=True)
                else:
                    said.append(line.rstrip("\n"))
            process.wait()
        except BaseException:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(KILLED_SECONDS)
            process.kill()
            process.wait()  # at Ctrl-C Popen's own end hardly waits
            raise
    if process.returncode == AccelerationError.inner_code:
        raise AccelerationError("\n".join(said))
    if process.returncode != 0:
        raise BakeError("\n".join(said) or f"the test ended with {process.returncode} and said nothing")


@contextmanager
def _work_folder(image: DiskImage) -> Iterator[Path]:
    """Give a folder for consoles, manager and disks; after a failure its logs are kept beside the image."""
    for stale in cache_dir().glob(".testing-*"):  # of tests that were killed
        if not Path("/proc", stale.name.split("-")[1]).exists():
            shutil.rmtree(stale, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".testing-{os.getpid()}-", dir=cache_dir()))
    (work / "home").mkdir()
    (work / "home/cache").symlink_to(cache_dir())
    logs = image.folder / "test-logs"
    shutil.rmtree(logs, ignore_errors=True)
    try:
        yield work
    except BakeError as error:
        _keep_logs(work, logs)
        raise type(error)(str(error).replace(str(work), str(logs))) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _keep_logs(work: Path, logs: Path) -> None:
    logs.mkdir()
    condor = work / "home/state/pools/bake/var/log/condor"
    for path in (*work.glob("*.log"), *(condor.glob("*Log") if condor.is_dir() else ())):
        shutil.copy2(path, logs / path.name)
