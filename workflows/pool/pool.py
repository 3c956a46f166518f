"""The HTCondor pool on this machine: which one there is, and how to run its programs.

Two kinds: `installed`, the host's own HTCondor, whose programs run as they are; and `embedded`, one that
`regiondag pool up` started in a root folder, whose programs run inside that. `Pool` hides the difference.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from nnlib.util.files import write_atomically
from nnlib.util.terminal import timed
from regiondag.errors import PoolError, UsageError
from regiondag.pool.process import Process
from regiondag.pool.rootfs import parse_version
from regiondag.pool.sandbox import USER, Mode, enter_argv, environment_argv, is_visible
from regiondag.util.user_dirs import state_dir

DEFAULT_NAME = "default"
NAME_VARIABLE = "REGIONDAG_POOL"
ROOT = Path("/")
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


@dataclass(frozen=True)
class Pool:
    """A pool that runs."""

    name: str
    kind: Literal["embedded", "installed"]
    version: tuple[int, int, int]
    client_config: Path | None = None
    simulated_gpus: int = 0
    enter: tuple[str, ...] = ()
    visible: tuple[Path, ...] = ()

    def command(self, argv: Sequence[str], cwd: Path | None = None) -> list[str]:
        """Return the call that, made on the host, runs `argv` where the pool's programs are.

        Raises PoolError if the pool cannot see `cwd` (default: the current folder).
        """
        folder = (cwd or Path.cwd()).absolute()
        if self.kind == "installed":
            return ["env", "--chdir", str(folder), *argv]
        if folder != ROOT and not is_visible(folder, self.visible):
            named = "" if self.name == DEFAULT_NAME else f" --name {self.name}"
            raise PoolError(
                f"the pool {self.name!r} cannot see {folder}; it sees {', '.join(map(str, self.visible))}. "
                f"Work below one of these, or start it again from there: regiondag pool down{named}; "
                f"regiondag pool up{named}"
            )
        return [*self.enter, *environment_argv(folder, {"USER": USER, "LOGNAME": USER}), *argv]

    def run(self, argv: Sequence[str], cwd: Path | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run `argv` as `command` says and wait; `options` go to subprocess.run (output is text)."""
        with timed(shlex.join(argv)):
            return subprocess.run(self.command(argv, cwd), text=True, check=options.pop("check", False), **options)


@dataclass(frozen=True)
class PoolState:
    """What is remembered of an embedded pool in `state.json`; enough to find it again or start it again."""

    name: str
    suite: str
    mode: Mode
    image: str
    version: tuple[int, int, int]
    port: int
    simulated_gpus: int
    config: tuple[tuple[str, str], ...]
    visible: tuple[str, ...]
    since: float
    processes: tuple[Process, ...]
    stopped: bool = False
    packages: tuple[str, ...] = ()

    @property
    def is_running(self) -> bool:
        """Say whether the pool's first process, condor_master, still runs."""
        return bool(self.processes) and self.processes[0].is_alive()


def pool_folder(name: str) -> Path:
    """Return where an embedded pool keeps its state; the name must be safe in paths."""
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(
            f"pool name {name!r}: 1 to 31 lower-case letters, digits or '-', not starting with '-', "
            "for instance: regiondag pool up --name test-1"
        )
    return state_dir() / "pools" / name


def choose_name(name: str | None) -> str:
    """Return the name asked for: the argument, else REGIONDAG_POOL, else `default`."""
    return name or os.environ.get(NAME_VARIABLE) or DEFAULT_NAME


def read_state(name: str) -> PoolState | None:
    """Return what is remembered of the embedded pool `name`, or None if there was none."""
    path = pool_folder(name) / "state.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        values["version"] = cast(tuple[int, int, int], tuple(values["version"]))
        values["config"] = tuple((str(file), str(text)) for file, text in values["config"])
        values["visible"] = tuple(values["visible"])
        values["packages"] = tuple(values.get("packages", ()))
        values["processes"] = tuple(Process(**process) for process in values["processes"])
        return PoolState(**values)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise PoolError(f"{path} belongs to somebody else; set REGIONDAG_HOME to a folder of yours") from None
    except (ValueError, TypeError, KeyError) as error:
        raise PoolError(f"{path} is damaged ({error}); remove the folder {path.parent} and start again") from None


def write_state(state: PoolState) -> None:
    """Replace state.json in one step."""
    write_atomically(pool_folder(state.name) / "state.json", json.dumps(dataclasses.asdict(state), indent=1) + "\n")


def list_pools() -> list[str]:
    """Return the names of all embedded pools that are remembered, running or not."""
    folder = state_dir() / "pools"
    return sorted(path.parent.name for path in folder.glob("*/state.json")) if folder.is_dir() else []


def find_running_pools() -> list[PoolState]:
    """Return what is remembered of all embedded pools that run."""
    return [state for name in list_pools() if (state := read_state(name)) and state.is_running]


def pool_of(state: PoolState) -> Pool:
    """Return the running pool that `state` describes."""
    return Pool(
        name=state.name,
        kind="embedded",
        version=state.version,
        client_config=pool_folder(state.name) / "client.conf",
        simulated_gpus=state.simulated_gpus,
        enter=tuple(enter_argv(state.mode, state.processes[0].pid)),
        visible=tuple(map(Path, state.visible)),
    )


def find_installed_pool() -> Pool | None:
    """Return the host's own HTCondor if it is there and its schedd answers."""
    if not all(map(shutil.which, ("condor_q", "condor_submit_dag", "condor_config_val"))):
        return None
    try:
        answer = subprocess.run(
            ["condor_q", "-limit", "1", "-af", "ClusterId"], capture_output=True, check=False, timeout=20
        )
        if answer.returncode != 0:
            return None
        version = subprocess.run(["condor_version"], capture_output=True, text=True, check=True, timeout=20).stdout
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return None
    return Pool(name="installed", kind="installed", version=parse_version(version))


def find_pool(name: str | None = None) -> Pool | None:
    """Return the running pool: the embedded one called `name` (or `default`), else, without a name, the installed."""
    state = read_state(choose_name(name))
    if state and state.is_running:
        return pool_of(state)
    return find_installed_pool() if name is None else None


def describe_other_pools(pool: Pool) -> list[Pool]:
    """Return all pools that run here besides one."""
    installed = find_installed_pool()
    found = [*map(pool_of, find_running_pools()), *([installed] if installed else [])]
    return [other for other in found if other.name != pool.name]


def require_pool(name: str | None = None) -> Pool:
    """Return what `find_pool` finds, or raise PoolError that says what is there and what to do."""
    pool = find_pool(name)
    if pool:
        return pool
    raise PoolError(why_absent(name))


def why_absent(name: str | None = None) -> str:
    """Say of a pool that does not run what is there in its place, and what to do."""
    wanted = choose_name(name)
    start = "regiondag pool up" + ("" if wanted == DEFAULT_NAME else f" --name {wanted}")
    state = read_state(wanted)
    if state and not state.stopped:
        return (
            f"the pool {wanted!r} has died (it was killed or the machine restarted); its queue is kept. "
            f"Start it again with: {start}"
        )
    others = [other.name for other in find_running_pools() if other.name != wanted]
    running = (
        f" Running are: {', '.join(others)} (choose with --pool, of `regiondag pool` with --name)." if others else ""
    )
    silent = (
        " HTCondor is installed here, and its queue does not answer: see what `condor_q` says."
        if wanted == DEFAULT_NAME and shutil.which("condor_q")
        else ""
    )
    return f"no pool called {wanted!r} runs on this machine.{running}{silent} Start it with: {start}"
