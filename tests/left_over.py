"""Run a command, and say by name what it leaves behind.

Linux gives orphans to the nearest ancestor that asks for them (prctl(2), PR_SET_CHILD_SUBREAPER), which is this
process: whatever still runs when the command has ended is a child of it, daemons included. What is left is ended and
unmounted. Exit code: the command's own, or 1 where it would be 0 and something was left.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS = 0x00020000  # unshare(2): mounts of one's own
MS_REC, MS_PRIVATE = 1 << 14, 1 << 18  # mount(2)
PATIENCE = 5.0  # seconds for what is about to end
ROUNDS = 20  # children of what was ended come here, too


def run_watched(command: Sequence[str]) -> int:
    """Run the command; return its exit code, or 1 where only that would tell of what is left."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    own_mounts()
    before = mounts()
    started: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _: object) -> None:
        for process in started:
            process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    # A terminal's Ctrl-C reaches the command by itself, which heeds it also where a script's `&` had it ignored: what
    # has a handler here is as at first there.
    signal.signal(signal.SIGINT, lambda *_: None)
    started.append(subprocess.Popen(command))
    code = wait_for(started[0].pid)
    left = [*end_children(), *unmount({place for place in mounts() - before if is_ours(place)})]
    for line in left:
        print(f"left behind: {line}", file=sys.stderr)
    return (128 - code if code < 0 else code) or int(bool(left))


def wait_for(process: int) -> int:
    """Wait until a child has ended; return its exit code, negative for a signal.

    Orphans that end meanwhile are buried at once, as by any system's first process: tests look in /proc for whether
    a process is gone.
    """
    while True:
        ended, status = os.wait()
        if ended == process:
            return os.waitstatus_to_exitcode(status)


def own_mounts() -> None:
    """Mount where nobody else sees it from now on, and see nobody else's mounts; only root may.

    Parts of a run go on side by side: what one of them has mounted for as long as it works was never left by another.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) == 0 and libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        raise OSError(ctypes.get_errno(), "mounts cannot be made private")


def end_children() -> list[str]:
    """Return the processes that are still there after a moment, each as a line, and end them."""
    until, told = time.monotonic() + PATIENCE, []
    while _children() and time.monotonic() < until:
        time.sleep(0.1)
    for _ in range(ROUNDS):
        found = _children()
        told += [f"process {pid}: {_command(pid)}" for pid in found]
        for pid in found:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        if not found:
            break
        time.sleep(0.05)
    return told


def mounts() -> set[str]:
    """Return the places where something is mounted."""
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def is_ours(place: str) -> bool:
    """Whether something of this project is mounted there: others mount theirs meanwhile."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    own = (Path(__file__).parents[1], Path(tempfile.gettempdir()), cache, Path.home() / ".local")
    return any(Path(unescaped(place)).is_relative_to(folder) for folder in own)


def unescaped(place: str) -> str:
    """Return a path as mountinfo's octal escapes mean it."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), place)


def unmount(places: set[str]) -> list[str]:
    """Unmount what is left, the innermost first; return a line for each."""
    for place in sorted(places, reverse=True):
        subprocess.run(["umount", "--lazy", unescaped(place)], check=False)
    return [f"mount {unescaped(place)}" for place in sorted(places)]


def _children() -> list[int]:
    """Return the children that run; those that have ended are waited for, which is all that they need."""
    while True:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return []
        if not ended:
            me = os.getpid()
            return [int(number) for number in Path(f"/proc/{me}/task/{me}/children").read_text().split()]


def _command(pid: int) -> str:
    """Return what a process was started as."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return words or f"[{Path(f'/proc/{pid}/comm').read_text().strip()}]"
    except OSError:
        return "gone by now"
