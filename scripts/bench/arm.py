"""What emulating an arm64 processor costs where an image for one would be baked: a Debian root, for it and for ours.

needs: root or subuids, mmdebstrap, and a host that runs programs of arm64 (apt-get install qemu-user-static)
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regiondag.pool.rootfs_build import apt_settings
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import NotMeasuredError, measure

BENCH = "arm"
EMULATION = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")


@dataclass(frozen=True)
class Sizes:
    """How much is measured: Debian's essential packages, and what is put upon them."""

    packages: str = "python3"


class Arm(Bench[Sizes]):
    """The row."""

    def root(self) -> Iterator[Row]:
        """CPU time, since nothing waits for the other architecture's packages but the network."""
        if not EMULATION.exists():
            raise NotMeasuredError("this host runs no programs of arm64: apt-get install qemu-user-static")
        seconds = {name: self._make(name) for name in ("arm64", "amd64")}
        workload = f"a Debian 13 with {self.sizes.packages}, CPU time: for arm64 by emulation, beside amd64"
        yield Row(workload, seconds["arm64"], seconds["amd64"], "s")

    def _make(self, architecture: str) -> float:
        dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
        settings = [f"--aptopt={setting}" for setting in apt_settings(dump)]
        argv = ["mmdebstrap", "--variant=minbase", "--skip=check/qemu", f"--architectures={architecture}"]
        argv += [f"--include={self.sizes.packages}", *settings, "trixie", str(self.area / f"{architecture}.tar")]
        return measure(argv, timeout=3000, env={"TMPDIR": str(self.area)}).cpu_seconds


if __name__ == "__main__":
    sys.exit(main(BENCH, Arm, Sizes(), Sizes("dash")))
