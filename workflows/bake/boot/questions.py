"""What the machine under test is asked by its user data, and answers on its serial console. Pure."""

from __future__ import annotations

import re

from regiondag.bake.boot.serial_console import strip_terminal_codes

HARDENING = "/usr/local/libexec/regiondag/hardening.py"
_KEPT = re.compile(r"regiondag-hardening: (\d+) of (\d+) rules are kept")
_ROOT = re.compile(r"bake test: root is on (/dev/\S+)")

# Added to the cloud-config of a worker. Early, for it powers off soon: which disk it has found its root on ...
ASK_ROOT = """\
bootcmd:
  - [sh, -c, 'echo "bake test: root is on $(findmnt --noheadings --output SOURCE /)" >/dev/console']
"""
# ... and at the end of the boot, with HTCondor running: whether it is as closed as it should be.
ASK_HARDENING = f"""\
runcmd:
  - [sh, -c, '/usr/local/libexec/regiondag/python -s {HARDENING} >/dev/console 2>&1']
"""


def find_root(serial: str) -> str:
    """Return the partition that the root file system lies on; empty where it was not said.

    >>> find_root("[   4.1] bake test: root is on /dev/nvme1n1p3\\r\\n")
    '/dev/nvme1n1p3'
    """
    return _first(_ROOT, serial)


def count_kept(serial: str) -> str:
    """Return how many rules of hardening.py are kept, such as `22/22`; empty as long as it has not ended."""
    return _first(_KEPT, serial)


def _first(pattern: re.Pattern[str], serial: str) -> str:
    found = pattern.search(strip_terminal_codes(serial))
    return "/".join(found.groups()) if found else ""
