"""A pool of several machines on one: a manager and workers as network namespaces, each with a root folder of its own.

    with Lab(workers=2) as lab:                      # needs root; usable() says why it would not work
        lab.wait_for_slots()
        lab.add_user("alice")                        # an account on the manager, with a home folder
        lab.regiondag(["generate", "study.yaml"], user="alice", cwd="/home/alice/study")
        lab.run(lab.manager, ["condor_q"], user="alice")
        lab.cut(lab.workers[0])                      # the network between this worker and all others is gone, silently
        lab.mend(lab.workers[0])
        lab.crash(lab.workers[1])                    # as if its power were cut; nothing of it is left
        stranger = lab.add_machine("stranger")       # HTCondor's programs and the network, no role and no token
        files = lab.manager.root / "home/alice"      # what a machine sees, for root outside

Every machine is a process in namespaces of its own (network, mounts, process numbers, name), joined by a bridge in one
more. It sees the embedded pool's root folder with a layer of its own in memory above it, and nothing of this machine
but, on the manager, the checkout (read-only, /opt/regiondag). The machines reach each other and nobody else. Manager
and workers run what the recipe puts on them (ami/provision), as root: several accounts exist.

Nothing has to be cleaned up: namespaces, veths, bridge, mounts, files and processes hang on one process that ends when
its standard input does, so also when Python is killed. Copy what you want to keep before that (`save`).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from regiondag.errors import PoolError
from regiondag.pool import process, rootfs, rootfs_build

CHECKOUT = Path(__file__).resolve().parents[2]
PROVISION = CHECKOUT / "ami/provision"
CODE = "/opt/regiondag"
PYTHON = "/usr/local/libexec/regiondag/python"
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOOLS = ("ip", "nsenter", "unshare")  # the others are in every Debian
BRIDGE = "regiondag"
NETWORK = "10.77.0"
FIRST = 10  # the manager; the others count up from it
MANAGER_NAME = "manager.pool.example"
SECONDS = 60.0

UNSHARE = ("unshare", "--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child=KILL")
# It ends with its standard input, and all processes and machines with it.
SWITCH = f"trap '' CHLD; ip link add {BRIDGE} type bridge; ip link set {BRIDGE} up; exec cat"
TRIAL = """
ip link add bridge type bridge
ip link add one type veth peer name other
mount -t tmpfs tmpfs /mnt
mkdir /mnt/lower /mnt/upper /mnt/work /mnt/both
mount -t overlay -o lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/both
"""

BOOT = Path(__file__).with_name("several_machines_boot.sh")
# On a machine systemd's units run these before HTCondor.
WORKER_FILE = "/usr/local/sbin/regiondag-worker-file"
WORKER_BOOT = ("/usr/local/libexec/regiondag/slot-accounts.sh", f"{PYTHON} /usr/local/libexec/regiondag/join.py")

CPUS = 2
# Machines of this size, and daemons that look more often than a real pool's need to.
SETTINGS = f"""# What a machine that is a namespace needs; the role's settings are those of the recipe.
NUM_CPUS = {CPUS}
MEMORY = 2048
DETECTED_MEMORY = 2048
DEFAULT_DOMAIN_NAME = pool.example
UPDATE_INTERVAL = 10
NEGOTIATOR_INTERVAL = 2
NEGOTIATOR_MIN_INTERVAL = 2
NEGOTIATOR_CYCLE_DELAY = 2
SCHEDD_INTERVAL = 2
SCHEDD_MIN_INTERVAL = 1
PERIODIC_EXPR_INTERVAL = 5
DAGMAN_USER_LOG_SCAN_INTERVAL = 1
ENABLE_KERNEL_TUNING = False
# nnlib then trains without a GPU.
GPU_DISCOVERY_EXTRA = $(GPU_DISCOVERY_EXTRA) -simulate:2,2
STARTER_JOB_ENVIRONMENT = "NNLIB_SIMULATED_GPUS=1"
"""


class LabError(Exception):
    """A machine does not do what it should; the message says what it said."""


@dataclass(frozen=True)
class Machine:
    """One machine; `pid` is its first process, as seen from outside."""

    name: str
    address: str
    pid: int

    @property
    def link(self) -> str:
        """The name of the bridge's end of its network cable."""
        return f"to-{self.address.rpartition('.')[2]}"

    @property
    def root(self) -> Path:
        """Its root folder as root sees it from outside; its absolute symbolic links lead astray there."""
        return Path(f"/proc/{self.pid}/root")

    def argv(self, command: Sequence[str], user: str, cwd: str, settings: Mapping[str, str]) -> list[str]:
        """Return the call that runs `command` on it."""
        values = {"PATH": SEARCH_PATH, "LC_ALL": "C.UTF-8", "HOME": home(user), "USER": user, **settings}
        become = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        environment = ["env", "--ignore-environment", f"--chdir={cwd}", *(f"{key}={values[key]}" for key in values)]
        return [*entered(self.pid), *become, *environment, *command]


class Lab:
    """A manager and so many workers; `settings` is text that is added to everybody's HTCondor configuration.

    With `named` the workers know the manager by MANAGER_NAME alone, from /etc/hosts, not by its address.
    """

    def __init__(self, workers: int = 2, settings: str = "", named: bool = False) -> None:
        self.machines: list[Machine] = []
        self._count, self._settings, self._named = workers, SETTINGS + settings, named
        self._switch: subprocess.Popen[bytes] | None = None
        self._switch_pid = 0
        self._started: list[subprocess.Popen[bytes]] = []
        self._image = Path()

    def __enter__(self) -> Lab:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def manager(self) -> Machine:
        """The machine with collector, negotiator and schedd."""
        return self.machines[0]

    @property
    def workers(self) -> list[Machine]:
        """The machines that offer slots, those that were cut off included, those that crashed not."""
        return [machine for machine in self.machines if machine.name.startswith("worker")]

    def start(self) -> None:
        """Start the switch, the manager and the workers; return when HTCondor runs on all of them."""
        if why := unusable():
            raise LabError(why)
        self._image = rootfs.ensure_image("trixie", print).path
        argv = [*UNSHARE, "--", "sh", "-euc", SWITCH]
        self._switch = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)
        self._switch_pid = _first_process(self._switch)
        until("the switch to be there", lambda: _quiet([*self._at_switch, "ip", "link", "show", "up", BRIDGE]))
        self._start_manager()
        for number in range(1, self._count + 1):
            self.add_worker(f"worker{number}")

    def stop(self) -> None:
        """End everything; what the machines held is gone."""
        switch, self._switch = self._switch, None
        if switch is None:
            return
        if switch.stdin is not None:
            switch.stdin.close()
        switch.wait(30)  # the kernel ends the first process of a process namespace after all others in it
        for started in self._started:
            started.wait(10)
        self.machines.clear()
        self._started.clear()

    def add_machine(self, name: str, code: Path | None = None) -> Machine:
        """Start a machine that runs nothing: no role, no token, HTCondor's programs as Debian has them."""
        address = f"{NETWORK}.{FIRST + len(self._started)}"
        command = ["sh", str(BOOT), name, str(self._image), str(code or "")]
        into_switch = [*entered(self._switch_pid, "--pid"), *UNSHARE, "--uts", "--ipc", "--", *command]
        started = subprocess.Popen(into_switch, stdin=subprocess.DEVNULL, start_new_session=True)
        self._started.append(started)
        machine = Machine(name, address, _first_process(started, depth=2))
        self.machines.append(machine)
        until(f"{name} to have booted", lambda: (machine.root / "run/booted").exists())
        ends = ["ip", "link", "add", machine.link, "type", "veth", "peer", "name", "eth0", "netns", str(machine.pid)]
        _do([*self._at_switch, *ends])
        _do([*self._at_switch, "ip", "link", "set", machine.link, "master", BRIDGE, "up"])
        for words in ("link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up"):
            _do([*entered(machine.pid, "--net"), "ip", *words.split()])
        return machine

    def add_worker(self, name: str) -> Machine:
        """Start a worker with a token of the manager, by the worker's own programs; return when it has joined."""
        machine = self.add_machine(name)
        install(PROVISION / "files", machine)
        told = json.loads(self.run(self.manager, [WORKER_FILE], check=True).stdout)
        if self._named:
            told["manager"] = MANAGER_NAME
            with (machine.root / "etc/hosts").open("a", encoding="utf-8") as hosts:
                hosts.write(f"{self.manager.address} {MANAGER_NAME}\n")
        (machine.root / "etc/regiondag").mkdir(mode=0o700)
        (machine.root / "etc/regiondag/worker.json").write_text(json.dumps({**told, "join_minutes": 1}))
        for command in WORKER_BOOT:
            self.run(machine, shlex.split(command), timeout=90, check=True)
        self.start_condor(machine)
        return machine

    def start_condor(self, machine: Machine) -> None:
        """Start HTCondor with what is configured there."""
        (machine.root / "etc/condor/config.d/95-lab.config").write_text(self._settings)
        self.run(machine, ["condor_master"], check=True)

    def add_user(self, name: str, machine: Machine | None = None) -> str:
        """Make an account on the manager, or where it is asked for; return its home folder."""
        self.run(machine or self.manager, ["useradd", "--create-home", "--shell", "/bin/sh", name], check=True)
        return home(name)

    def run(
        self,
        machine: Machine,
        command: Sequence[str],
        user: str = "root",
        cwd: str = "/",
        settings: Mapping[str, str] | None = None,
        timeout: float = SECONDS,
        check: bool = False,
        text: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there, with `text` as its input; with `check` a failure is a LabError."""
        argv = machine.argv(command, user, cwd, settings or {})
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=timeout, check=False)
        if check and done.returncode != 0:
            said = f"{done.stdout}{done.stderr}".strip()
            raise LabError(f"{machine.name}: {shlex.join(command)} exits with {done.returncode}: {said}")
        return done

    def regiondag(
        self, arguments: Sequence[str], user: str, cwd: str, check: bool = True, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run `regiondag` of this checkout on the manager."""
        settings = {"PYTHONDONTWRITEBYTECODE": "1"}
        return self.run(self.manager, [PYTHON, f"{CODE}/workflows", *arguments], user, cwd, settings, timeout, check)

    def cut(self, machine: Machine) -> None:
        """Take its cable out of the bridge: what it and the others send each other is lost, and nobody is told."""
        _do([*self._at_switch, "ip", "link", "set", machine.link, "nomaster"])

    def mend(self, machine: Machine) -> None:
        """Put its cable back."""
        _do([*self._at_switch, "ip", "link", "set", machine.link, "master", BRIDGE])

    def crash(self, machine: Machine) -> None:
        """Cut a machine's power: it is gone with all that it held."""
        os.kill(machine.pid, signal.SIGKILL)
        self.machines.remove(machine)
        until(f"{machine.name} to be gone", lambda: not Path(f"/proc/{machine.pid}").exists())

    def slots(self) -> dict[str, str]:
        """Return the machine and the activity of every slot, by the slot's name."""
        columns = ["-af:t", "Name", "Activity"]
        done = self.run(self.manager, ["condor_status", *columns], check=True)
        return dict(line.split("\t") for line in done.stdout.splitlines())

    def wait_for_slots(self, seconds: float = SECONDS) -> None:
        """Return when every worker offers its slot."""
        names = [machine.name for machine in self.workers]
        until(
            f"slots of {names}",
            lambda: all(any(f"@{name}." in slot for slot in self.slots()) for name in names),
            seconds,
        )

    def save(self, folder: Path) -> None:
        """Copy every machine's HTCondor logs to `folder`/NAME."""
        for machine in self.machines:
            with suppress(OSError, shutil.Error):
                shutil.copytree(machine.root / "var/log/condor", folder / machine.name, dirs_exist_ok=True)

    def _start_manager(self) -> None:
        manager = self.add_machine("manager", CHECKOUT)
        install(PROVISION / "manager", manager)
        self.start_condor(manager)
        until("the collector", lambda: self.run(manager, ["condor_status", "-schedd", "-af", "Name"]).stdout != "")

    @property
    def _at_switch(self) -> list[str]:
        return entered(self._switch_pid, "--net")


def unusable() -> str:
    """Return why no lab can be started here, or an empty string; programs that Debian has are installed."""
    if os.geteuid() != 0:
        return "several machines on one need root"
    try:
        rootfs_build.install_tools(TOOLS)
    except PoolError as error:
        return str(error)
    done = subprocess.run([*UNSHARE, "--", "sh", "-euc", TRIAL], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"this machine refuses namespaces or bridges: {done.stderr.strip()}"


def entered(pid: int, *namespaces: str) -> list[str]:
    """Return the prefix of a call that runs a program in namespaces of a process, in all of them by default."""
    everything = ("--mount", "--net", "--uts", "--ipc", "--pid", "--root", "--wd")
    return ["nsenter", "--target", str(pid), *(namespaces or everything), "--"]


def install(files: Path, machine: Machine) -> None:
    """Put the recipe's files of a role where its step puts them; systemd's are for machines that have it."""
    for source in sorted(path for path in files.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        path = source.relative_to(files)
        if path.parts[:2] in (("etc", "condor"), ("usr", "local")):
            target = machine.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod(0o755 if path.parts[0] == "usr" else 0o644)


def home(user: str) -> str:
    """Return an account's home folder."""
    return "/root" if user == "root" else f"/home/{user}"


def until(what: str, true: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Wait for something; LabError if it does not come."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise LabError(f"waited {seconds:g} s for {what}")
        time.sleep(0.1)


def _first_process(started: subprocess.Popen[bytes], depth: int = 1) -> int:
    """Return the process number, as seen here, of the first process in the namespace that `started` makes."""
    found: list[int] = []

    def there() -> bool:
        if started.poll() is not None:
            raise LabError(f"a machine's first process exits with {started.returncode}")
        found[:] = [pid for pid in _descendants(started.pid) if _is_first(pid, depth)]
        return bool(found)

    until("a machine's first process", there)
    return found[0]


def _descendants(pid: int) -> list[int]:
    children = process.children(pid)
    return [*children, *(pid for child in children for pid in _descendants(child))]


def _is_first(pid: int, depth: int) -> bool:
    """Say whether a process is the first one of a namespace so many levels below ours."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, *numbers = line.split()
            if name == "NSpid:":
                return len(numbers) == depth + 1 and numbers[-1] == "1"
    return False


def _quiet(argv: Sequence[str]) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def _do(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{shlex.join(argv)}: {done.stderr.strip()}")
