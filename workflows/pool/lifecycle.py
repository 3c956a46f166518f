"""Start and stop an embedded pool."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlib.util.files import locked
from regiondag.errors import PoolError
from regiondag.pool import sandbox
from regiondag.pool.config import render_client_config, render_pool_config
from regiondag.pool.machine import require_machine
from regiondag.pool.pool import (
    ROOT,
    Pool,
    PoolState,
    choose_name,
    find_running_pools,
    pool_folder,
    pool_of,
    read_state,
    write_state,
)
from regiondag.pool.process import Process, children, find_below, look_up
from regiondag.pool.rootfs import RootImage, ensure_image, image_path, remove_old_images
from regiondag.pool.rootfs_build import Tell
from regiondag.util.resources import resource_dir
from regiondag.util.user_dirs import make_dir

DEFAULT_SUITE = "trixie"
MASTER = ("/usr/sbin/condor_master", "-f")

# What a caller may ignore (`nohup`, cron, a script's `&`), and the pool's jobs shall not.
HEEDED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)

START_SECONDS = 60
GRACE_SECONDS = 10
FAST_SECONDS = 5


@dataclass(frozen=True)
class PoolWishes:
    """What the user asked of an embedded pool; None where nothing was said."""

    suite: str | None = None
    simulated_gpus: int | None = None
    config: tuple[tuple[str, str], ...] | None = None
    packages: tuple[str, ...] | None = None  # of Debian, for the jobs' programs


def up(name: str | None, wishes: PoolWishes, tell: Tell, rebuild: bool = False) -> Pool:
    """Start the embedded pool `name`, or say that it is up; return it once it is ready to run jobs."""
    name = choose_name(name)
    folder = pool_folder(name)
    make_dir(folder)
    with locked(folder / "lock"):  # one command at a time starts or stops a pool
        state = read_state(name)
        if state and state.is_running:
            _tell_already_up(state, wishes, rebuild, tell)
            return pool_of(state)
        if state and not state.stopped:
            tell(f"the pool {name!r} had died; starting it again with its queue")
            wishes = _as_before(state, wishes)
        suite, packages = wishes.suite or DEFAULT_SUITE, wishes.packages or ()
        built = image_path(suite, packages).is_dir() and not rebuild
        require_machine(["sandbox"] if built else ["sandbox", "build"])
        mode = sandbox.detect_mode()
        image = ensure_image(suite, tell, rebuild, packages)
        remove_old_images(keep=[Path(other.image) for other in find_running_pools()])
        pool = _start(name, mode, image, wishes, tell)
        if state:
            _give_up_lost_jobs(name)
        return pool


def down(name: str | None, tell: Tell, purge: bool = False) -> None:
    """Stop the embedded pool `name`: running jobs are killed, the queue is kept unless `purge`."""
    name = choose_name(name)
    unknown = PoolError(f"no pool called {name!r} was ever started here; nothing to stop")
    if read_state(name) is None:
        raise unknown
    with locked(pool_folder(name) / "lock"):
        state = read_state(name)
        if state is None:  # forgotten while we waited
            raise unknown
        if state.is_running:
            _stop(state)
            tell(f"the pool {name!r} is down")
        else:
            tell(f"the pool {name!r} was not running")
        write_state(dataclasses.replace(state, stopped=True, processes=()))
        if purge:
            shutil.rmtree(pool_folder(name))
            tell("its queue, logs and settings are removed")
        elif any((pool_folder(name) / "var/spool/condor").glob("job_queue.log")):
            tell("its queue is kept: `regiondag pool up` goes on with it, `regiondag pool down --purge` forgets it")


def _as_before(state: PoolState, wishes: PoolWishes) -> PoolWishes:
    return PoolWishes(
        suite=wishes.suite or state.suite,
        simulated_gpus=state.simulated_gpus if wishes.simulated_gpus is None else wishes.simulated_gpus,
        config=state.config if wishes.config is None else wishes.config,
        packages=state.packages if wishes.packages is None else wishes.packages,
    )


def _tell_already_up(state: PoolState, wishes: PoolWishes, rebuild: bool, tell: Tell) -> None:
    tell(f"the pool {state.name!r} is already up")
    before = PoolWishes(state.suite, state.simulated_gpus, state.config, state.packages)
    if rebuild or _as_before(state, wishes) != before:
        tell("it keeps the settings it was started with; to change them, first: regiondag pool down")


def _start(name: str, mode: sandbox.Mode, image: RootImage, wishes: PoolWishes, tell: Tell) -> Pool:
    folder = pool_folder(name)
    _prepare_folder(folder)
    visible = sandbox.visible_folders(extra=(Path.home(), Path.cwd()))
    state = PoolState(
        name=name,
        suite=image.suite,
        mode=mode,
        image=str(image.path),
        version=image.version,
        port=_free_port(),
        simulated_gpus=wishes.simulated_gpus or 0,
        config=wishes.config or (),
        packages=wishes.packages or (),
        visible=tuple(map(str, visible)),
        since=time.time(),
        processes=(),
    )
    _write_config(folder, state)
    if mode == "chroot":
        _hand_over(folder)
        tell(f"no user namespaces here: the pool runs as uid {sandbox.UID}; run folders must be writable for it")
    argv = sandbox.start_argv(mode, sandbox.plan_mounts(image.path, folder, visible), folder / "root", MASTER)
    state = dataclasses.replace(state, processes=_spawn(argv, folder))
    try:
        write_state(state)
        _wait_until_ready(state, folder)
    except BaseException:
        _stop(state)
        write_state(dataclasses.replace(state, stopped=True, processes=()))
        raise
    return pool_of(state)


def _give_up_lost_jobs(name: str) -> None:
    """Let jobs that ran when the pool died or was stopped run again at once.

    They ended with it, though HTCondor's shadows would look for them until their lease ends, ten minutes later.
    """
    state = read_state(name)
    for shadow in find_below(state.processes[0].pid, "condor_shadow", "--reconnect") if state else ():
        shadow.send(signal.SIGKILL)


def _prepare_folder(folder: Path) -> None:
    """Make the state folders; forget sockets, locks and addresses of an earlier life."""
    for name in ("run", "tmp"):
        shutil.rmtree(folder / name, ignore_errors=True)
    sandbox.make_state_folders(folder)
    (folder / "root").mkdir(exist_ok=True)
    for stale in (folder / "var").glob("*/condor/.*_a*"):  # .schedd_address, .master_ad and the like
        stale.unlink()


def _write_config(folder: Path, state: PoolState) -> None:
    base = (resource_dir("templates") / "pool" / "pool.conf").read_text(encoding="utf-8")
    text = render_pool_config(base, state.port, state.simulated_gpus, state.config)
    (folder / "condor_config.local").write_text(text, encoding="utf-8")
    client = render_client_config(state.port, spool=f"{folder}/var/spool/condor")
    (folder / "client.conf").write_text(client, encoding="utf-8")


def _hand_over(folder: Path) -> None:
    """Give the state folders to the account that a chroot runs the pool as."""
    for path in (folder / "tmp", folder / "run", folder / "var"):
        subprocess.run(["chown", "--recursive", "--no-dereference", f"{sandbox.UID}:{sandbox.UID}", path], check=True)


def _spawn(argv: Sequence[str], folder: Path) -> tuple[Process, ...]:
    """Start the sandbox in a session of its own; return its first process inside, then the one outside."""
    log = folder / "sandbox.log"
    with log.open("wb") as output, Path("/dev/null").open("rb") as nothing:
        outer = os.posix_spawnp(
            argv[0],
            list(argv),
            sandbox.image_environment(os.environ),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
            ],
            setsid=True,
            setsigdef=HEEDED,
        )
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and (outside := look_up(outer)):
            for child in children(outer):
                if inside := look_up(child):
                    return inside, outside
            time.sleep(0.02)
        raise PoolError(f"the sandbox did not start; it said:\n{_tail(log)}")
    except BaseException:  # Ctrl-C too leaves nothing behind that no state file knows
        with contextlib.suppress(ProcessLookupError):
            os.killpg(outer, signal.SIGKILL)
        os.waitpid(outer, 0)
        raise


def _wait_until_ready(state: PoolState, folder: Path) -> None:
    """Wait until collector, schedd and startd answer and the slots are all there."""
    pool = pool_of(state)
    deadline = time.monotonic() + START_SECONDS
    before = ""
    while time.monotonic() < deadline and state.is_running:
        slots = _answer(pool, "condor_status", "-af", "Name")
        schedds = slots and slots == before and _answer(pool, "condor_status", "-schedd", "-af", "Name")
        if schedds and _answer(pool, "condor_q", "-totals"):
            return
        before = slots
        time.sleep(0.2)
    what = f"was not ready within {START_SECONDS} seconds" if state.is_running else "ended at once"
    logs = [folder / "sandbox.log", *(folder / "var/log/condor" / f"{log}Log" for log in ("Master", "Start", "Sched"))]
    raise PoolError(
        f"the pool {state.name!r} {what}. The ends of its logs (all are in {folder}/var/log/condor):\n"
        + "\n".join(f"{log.name}:\n{_tail(log)}" for log in logs if log.exists())
    )


def _answer(pool: Pool, *argv: str) -> str:
    try:
        done = pool.run(argv, cwd=ROOT, capture_output=True, timeout=20)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _stop(state: PoolState) -> None:
    """End condor_master and with it all processes of the sandbox: politely, then quickly, then for certain."""
    inside, *outside = state.processes
    for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGQUIT, FAST_SECONDS), (signal.SIGKILL, 5)):
        inside.send(number)
        if inside.wait_gone(seconds):
            break
    for process in outside:
        if not process.wait_gone(2):
            process.send(signal.SIGKILL)
            process.wait_gone(2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tail(path: Path, count: int = 8) -> str:
    return "\n".join(f"  {line}" for line in path.read_text(errors="replace").splitlines()[-count:])
