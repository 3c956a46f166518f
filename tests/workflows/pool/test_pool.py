"""The pool's settings, state and messages. No pool."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from regiondag.cli import main
from regiondag.errors import PoolError, UsageError
from regiondag.pool import lifecycle, logs, rootfs, rootfs_build, status
from regiondag.pool import pool as pools
from regiondag.pool.config import render_client_config, render_pool_config
from regiondag.pool.pool import Pool, PoolState
from regiondag.pool.process import Process
from regiondag.util.resources import resource_dir

DEAD = Process(pid=1, start_time=1, boot="long ago")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let nothing of the user's own pools be seen, and no installed HTCondor."""
    monkeypatch.setenv("REGIONDAG_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("REGIONDAG_POOL", raising=False)
    monkeypatch.setattr(pools, "find_installed_pool", lambda: None)
    return tmp_path / "home"


def remember(name: str = "default", **changes: object) -> PoolState:
    """Write the state of a pool whose processes are gone."""
    state = PoolState(
        name=name,
        suite="trixie",
        mode="bwrap",
        image="/image",
        version=(23, 9, 6),
        port=9618,
        simulated_gpus=0,
        config=(("a.conf", "X = 1"),),
        visible=("/home",),
        since=0.0,
        processes=(DEAD,),
    )
    state = dataclasses.replace(state, **changes)  # type: ignore[arg-type]
    pools.pool_folder(name).mkdir(parents=True)
    pools.write_state(state)
    return state


def test_pool_config_without_gpus_detects_none():
    text = render_pool_config("BASE = 1\n", 9700, 0, ())
    assert text.startswith("BASE = 1\n")
    assert "COLLECTOR_HOST = 127.0.0.1:9700" in text
    assert "STARTD_DETECT_GPUS =\n" in text
    assert "-simulate" not in text


def test_pool_config_with_gpus_says_that_they_are_simulated():
    text = render_pool_config("", 9700, 3, (("mine.conf", "NUM_CPUS = 4"),))
    assert "-simulate:2,3" in text
    assert "SimulatedGPUs = True" in text
    assert "HAS_GPU = (TotalSlotGPUs ?: 0) > 0" in text
    assert text.endswith("# --config mine.conf\nNUM_CPUS = 4\n")


def test_client_config_can_only_look():
    text = render_client_config(9700, "/spool")
    assert "COLLECTOR_HOST = 127.0.0.1:9700" in text
    assert "SPOOL = /spool" in text


def test_nothing_listens_beyond_loopback():
    base = (resource_dir("templates") / "pool" / "pool.conf").read_text()
    assert "NETWORK_INTERFACE = 127.0.0.1" in base
    assert "BIND_ALL_INTERFACES = False" in base
    assert "SEC_DEFAULT_AUTHENTICATION = REQUIRED" in base


def test_each_job_has_a_shadow_of_its_own_for_one_that_goes_on_comes_too_early():
    text = render_pool_config((resource_dir("templates") / "pool" / "pool.conf").read_text(), 9700, 0, ())
    assert "\nSHADOW_WORKLIFE = 0\n" in text


@pytest.mark.parametrize(
    "config", ["templates/pool/pool.conf", "ami/provision/manager/etc/condor/config.d/50-regiondag-manager.config"]
)
def test_a_dagman_that_was_held_does_not_rest_for_minutes(config):
    folder, _, rest = config.partition("/")
    text = render_pool_config((resource_dir(folder) / rest).read_text(), 9700, 0, ())
    assert "\nSCHEDULER_UNIVERSE_COOL_DOWN_DURATION = 10\n" in text


@pytest.mark.parametrize("name", ["", "../x", "A", "-a", "a b", "x" * 32])
def test_bad_names(name):
    with pytest.raises(UsageError, match="lower-case letters"):
        pools.pool_folder(name)


def test_state_round_trip(home):
    state = remember()
    assert pools.read_state("default") == state
    assert pools.read_state("other") is None
    assert pools.list_pools() == ["default"]
    assert (home / "state/pools/default/state.json").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "default"}'])
def test_damaged_state(text):
    remember()
    path = pools.pool_folder("default") / "state.json"
    path.write_text(text)
    with pytest.raises(PoolError, match=r"state.json is damaged .*; remove the folder"):
        pools.find_pool()


def test_no_pool_says_how_to_start_one():
    assert pools.find_pool() is None
    with pytest.raises(PoolError, match=r"no pool called 'default' runs .*: regiondag pool up$"):
        pools.require_pool()
    with pytest.raises(PoolError, match=r"regiondag pool up --name x$"):
        pools.require_pool("x")


def test_dead_and_stopped_pools_are_told_apart(monkeypatch):
    remember()
    assert pools.find_pool() is None
    with pytest.raises(PoolError, match=r"'default' has died .* its queue is kept"):
        pools.require_pool()
    remember("quiet", stopped=True, processes=())
    monkeypatch.setenv("REGIONDAG_POOL", "quiet")
    with pytest.raises(PoolError, match="no pool called 'quiet' runs"):
        pools.require_pool()


def test_a_folder_the_pool_cannot_see():
    pool = Pool("p", "embedded", (23, 9, 6), enter=("enter",), visible=(Path("/home"),))
    with pytest.raises(
        PoolError, match=r"'p' cannot see /opt/x; it sees /home\. Work below .*down --name p; .*up --name p$"
    ):
        pool.command(["true"], Path("/opt/x"))
    assert pool.command(["true", "a b"], Path("/home/me"))[-2:] == ["true", "a b"]


def test_an_installed_pools_programs_run_as_they_are(tmp_path):
    pool = Pool("installed", "installed", (25, 14, 1))
    assert pool.command(["true"], tmp_path) == ["env", "--chdir", str(tmp_path), "true"]
    done = pool.run(["sh", "-c", "pwd; exit 3"], tmp_path, capture_output=True)
    assert (done.returncode, done.stdout) == (3, f"{tmp_path}\n")


def test_a_start_that_is_interrupted_leaves_no_process(tmp_path, monkeypatch):
    """There is no state file yet by which `pool down` could find it."""
    started = []

    def interrupt(pid: int) -> list[int]:
        started.append(pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(lifecycle, "children", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lifecycle._spawn(["sh", "-c", "sleep 60 & wait"], tmp_path)
    assert not Path(f"/proc/{started[0]}").exists()


def test_a_pool_heeds_signals_that_its_caller_ignores(tmp_path):
    """`nohup regiondag pool up`, or from cron: jobs of the pool would ignore Ctrl-C for ever."""
    numbers = (signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        inside, outside = lifecycle._spawn(["sh", "-c", "sleep 60; true"], tmp_path)
        [line] = [line for line in Path(f"/proc/{inside.pid}/status").read_text().splitlines() if "SigIgn" in line]
        outside.send(signal.SIGKILL)
        inside.send(signal.SIGKILL)
        assert outside.wait_gone(5) and inside.wait_gone(5)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert not [number for number in numbers if int(line.split()[1], 16) >> (number - 1) & 1]


def test_a_pool_that_died_comes_back_as_it_was():
    state = remember(packages=("git",))
    again = lifecycle._as_before(state, lifecycle.PoolWishes(simulated_gpus=2))
    assert again == lifecycle.PoolWishes("trixie", 2, (("a.conf", "X = 1"),), ("git",))


def test_down_without_a_pool():
    with pytest.raises(PoolError, match="no pool called 'default' was ever started here"):
        lifecycle.down(None, print)


def test_down_of_a_dead_pool_and_purge():
    remember()
    told: list[str] = []
    lifecycle.down(None, told.append)
    assert told == ["the pool 'default' was not running"]
    lifecycle.down(None, told.append, purge=True)
    assert not pools.pool_folder("default").exists()


def test_a_pool_that_is_forgotten_twice_at_once():
    states = [remember(), None]  # before the lock, and when we have it
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifecycle, "read_state", lambda name: states.pop(0))
        with pytest.raises(PoolError, match="nothing to stop"):
            lifecycle.down(None, print, purge=True)


def test_slots_are_read_from_condor_status():
    slot = status.parse_slot("slot1@x\tPartitionable\tUnclaimed\t2\t4\t8000\t2\ttrue")
    assert slot == status.PoolSlot("slot1@x", True, 2, 4, 8000, 2, True)
    static = status.parse_slot("slot2@x\tStatic\tClaimed\tundefined\t4\t8000\tundefined\tfalse")
    assert static == status.PoolSlot("slot2@x", False, 1, 4, 8000, 0, False)
    assert status.parse_slot("slot1_1@x\tDynamic\tClaimed\tundefined\t1\t1\t0\tfalse") is None


def test_status_text_says_simulated():
    slots = (status.PoolSlot("slot1@x", True, 1, 2, 100, 2, True), status.PoolSlot("s2@x", True, 0, 2, 100, 0, False))
    jobs = status.count_jobs(["1", "2", "2", "5"])
    seen = status.PoolStatus("default", "embedded", "23.9.6", "127.0.0.1:1", None, 2, slots, jobs)
    text = status.as_text(seen)
    assert "2 simulated GPUs, 1 claims" in text
    assert "no GPU, unclaimed" in text
    assert text.endswith("jobs: 1 idle, 2 running, 1 held")
    assert json.loads(status.as_json(seen))["simulated_gpus"] == 2
    assert "2 GPUs" in status.as_text(dataclasses.replace(seen, simulated_gpus=0))


def test_logs_are_found_by_daemon_name(tmp_path):
    for name in ("SchedLog", "StartLog", "StarterLog.slot1_1", "MasterLog", "SchedLog.old"):
        (tmp_path / name).write_text("a\nb\nc\n")
    for word, name in {
        "schedd": "SchedLog",
        "condor_startd": "StartLog",
        "MasterLog": "MasterLog",
        "slot1_1": "StarterLog.slot1_1",
    }.items():
        assert logs.find_log(tmp_path, word).name == name
    assert list(logs.read(tmp_path / "SchedLog", 2, follow=False)) == ["b", "c"]
    with pytest.raises(UsageError, match=r"no log of 'shadow' .*; there are: MasterLog, SchedLog"):
        logs.find_log(tmp_path, "shadow")


def test_following_takes_up_a_rotated_log(tmp_path):
    path = tmp_path / "SchedLog"
    path.write_text("one\n")
    lines = logs.read(path, 5, follow=True, interval=0.01)
    assert next(lines) == "one"
    path.rename(tmp_path / "SchedLog.old")
    path.write_text("two\n")
    assert next(lines) == "two"
    lines.close()


def test_recipe_hash_changes_with_recipe_suite_and_machine(tmp_path):
    step = tmp_path / "10-base.sh"
    step.write_text("true\n")
    first = rootfs.recipe_hash([step], "trixie", "x86_64")
    assert first == rootfs.recipe_hash([step], "trixie", "x86_64")
    assert first != rootfs.recipe_hash([step], "forky", "x86_64")
    assert first != rootfs.recipe_hash([step], "trixie", "aarch64")
    step.write_text("false\n")
    assert first != rootfs.recipe_hash([step], "trixie", "x86_64")


def test_the_recipe_is_complete():
    names = [path.name for path in rootfs.recipe_files()]
    assert "provision.sh" in names
    assert "requirements.txt" in names


def test_mmdebstrap_argv(tmp_path):
    (tmp_path / "slim.dpkg.cfg").write_text("path-exclude=/usr/share/man/*\n")
    argv = rootfs_build.mmdebstrap_argv(
        "forky", False, tmp_path, Path("/w w"), ["A::B 1"], ["deb http://m.example forky main"]
    )
    assert argv[:2] == ["mmdebstrap", "--mode=unshare"]
    assert "--dpkgopt=path-exclude=/usr/share/man/*" in argv
    assert "--aptopt=A::B 1" in argv
    assert any("copy-in" in word and "'/w w'" in word for word in argv)
    assert argv[-3:] == ["forky", "-", "deb http://m.example forky main"]
    assert not any(word.startswith("--include") for word in argv)
    more = rootfs_build.Target(packages=("git", "r-base-core"))
    argv = rootfs_build.mmdebstrap_argv("forky", True, tmp_path, Path("/w"), [], [], more)
    assert {"--mode=root", "--include=git", "--include=r-base-core"} <= set(argv)


def test_packages_make_another_root_folder_whatever_their_order():
    plain, one = rootfs.image_path("trixie"), rootfs.image_path("trixie", ("git", "r-base-core"))
    assert one != plain == rootfs.image_path("trixie", ())
    assert one == rootfs.image_path("trixie", ("r-base-core", "git", "git"))


def test_states_of_pools_from_before_packages_are_read():
    remember()
    path = pools.pool_folder("default") / "state.json"
    values = json.loads(path.read_text())
    del values["packages"]
    path.write_text(json.dumps(values))
    state = pools.read_state("default")
    assert state and state.packages == ()


def test_apt_settings_of_the_host():
    dump = 'Acquire::Check-Valid-Until "false";\nAcquire::http::Proxy "http://p.example:3128";\nAPT::Get "x";\n'
    assert rootfs_build.apt_settings(dump) == [
        'Acquire::Check-Valid-Until "false"',
        'Acquire::http::Proxy "http://p.example:3128"',
    ]


def test_debian_mirrors_of_the_host():
    targets = (
        "Debian|bookworm|http://m.example/debian/\nDebian|bookworm-security|http://m.example/sec/\n"
        "Debian|bookworm-backports|http://m.example/debian/\nElse|bookworm|http://e.example/\n"
    )
    assert rootfs_build.debian_sources(targets, "forky") == [
        "deb http://m.example/debian/ forky main",
        "deb http://m.example/sec/ forky-security main",
    ]
    assert rootfs_build.debian_sources("Ubuntu|noble|http://u.example/\n", "trixie") == []
    assert rootfs_build.debian_sources("Debian|bookworm-security|http://m.example/sec/\n", "trixie") == []


def test_parse_version():
    assert rootfs.parse_version("$CondorVersion: 25.14.1 2026") == (25, 14, 1)
    with pytest.raises(PoolError, match="no HTCondor version in 'x'"):
        rootfs.parse_version("x")


def test_a_failed_build_leaves_nothing_that_looks_complete(tmp_path, monkeypatch):
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    fake = bin_dir / "mmdebstrap"
    fake.write_text(
        "#!/bin/sh\necho 'I: running apt-get update...' >&2\necho 'E: no route to the mirror' >&2\nexit 25\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_dir}:/usr/bin:/bin")
    monkeypatch.setattr(rootfs, "fetch_wheels", lambda *_: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    stale = rootfs.cache_dir() / ".building-trixie-1"
    stale.mkdir(parents=True)
    told: list[str] = []
    with pytest.raises(
        PoolError, match=r"(?s)mmdebstrap 25.*no route to the mirror\n.*all of its output is in .*\.log"
    ):
        rootfs.ensure_image("trixie", told.append)
    assert any("reading Debian's package lists" in line for line in told)
    assert sorted(path.suffix for path in rootfs.cache_dir().iterdir()) == [".lock", ".log"]


def test_an_image_is_built_whatever_htcondor_its_builder_uses(tmp_path, monkeypatch):
    fake = tmp_path / "bin" / "mmdebstrap"
    fake.parent.mkdir()
    # Debian's package of HTCondor asks for its configuration while it is installed.
    fake.write_text("#!/bin/sh\nenv | grep -E '^(CONDOR_CONFIG|_CONDOR_|PYTHONPATH|SOME_PROXY)' >&2\nexit 25\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    for name in ("CONDOR_CONFIG", "_CONDOR_SPOOL", "PYTHONPATH", "SOME_PROXY"):
        monkeypatch.setenv(name, "/outside")
    work = tmp_path / "work"
    work.mkdir()
    with (work / "log").open("w") as output, pytest.raises(PoolError, match="mmdebstrap 25"):
        rootfs_build.run_mmdebstrap("trixie", resource_dir("ami") / "provision", work, output, print)
    seen = [line for line in (work / "log").read_text().splitlines() if line.endswith("=/outside")]
    assert seen == ["SOME_PROXY=/outside"]


def test_missing_programs_name_the_command(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PoolError, match=r"(?s)needs bubblewrap.*sudo apt-get install -y .* bubblewrap"):
        rootfs_build.install_tools(["bwrap"])


def test_old_images_go_but_not_those_in_use():
    old, used, new = (rootfs.cache_dir() / f"rootfs-trixie-{name}" for name in ("a", "b", "c"))
    for path in (old, used, new):
        path.mkdir(parents=True)
    now = old.stat().st_mtime + rootfs.UNUSED_SECONDS + 60
    os.utime(new, (now, now))
    rootfs.remove_old_images([used], now=now)
    assert [path.exists() for path in (old, used, new)] == [False, True, True]


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["pool", "exec"], 2, "nothing to run"),
        (["pool", "exec", "--", "true"], 5, "no pool called 'default' runs"),
        (["pool", "up", "--simulate-gpus", "-1"], 2, "--simulate-gpus -1"),
        (
            ["pool", "up", "--packages", "git,--mode=root"],
            2,
            "--packages: seen '--mode=root'; legal: names of Debian's",
        ),
        (["pool", "up", "--name", "No"], 2, "pool name 'No'"),
        (
            ["pool", "up", "--name", "x", "--config", "/absent"],
            2,
            "--config /absent: No such file or directory; check the name; legal: a file of HTCondor's",
        ),
        (["pool", "status"], 5, "regiondag pool up"),
        (["pool", "down"], 5, "was ever started here"),
        (["pool", "logs", "-n", "-3"], 2, "cannot be negative"),
        (["pool", "logs"], 5, "no logs"),
    ],
)
def test_errors_of_the_command(argv, code, message, capsys):
    assert main(argv) == code
    assert message in capsys.readouterr().err


def test_help_does_not_import_heavy_libraries():
    program = (
        "import sys; import regiondag.commands.pool; "
        "sys.exit(any(name in sys.modules for name in ('htcondor2', 'platformdirs', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_what_follows_the_end_of_an_archive_is_read_too(tmp_path: Path) -> None:
    """A megabyte of padding, more than a pipe holds: the writer would die of SIGPIPE were it left unread."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "--create", "--file", tmp_path / "a.tar", "--directory", tmp_path, "file"], check=True)
    padded = (tmp_path / "a.tar").read_bytes() + bytes(1 << 20)
    argv = [*rootfs_build.DRAINING, "tar", "--extract", "--directory", str(tmp_path / "out")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as unpack:
        assert unpack.stdin
        unpack.stdin.write(padded)
        unpack.stdin.close()
    assert unpack.returncode == 0
    assert (tmp_path / "out/file").read_text() == "x"
    failing = subprocess.run([*rootfs_build.DRAINING, "false"], input=padded, check=False)
    assert failing.returncode == 1
