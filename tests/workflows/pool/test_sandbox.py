"""The sandbox's argument lists and messages, and how processes are known again. No pool."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
from pathlib import Path

import pytest

from regiondag.errors import PoolError
from regiondag.pool import sandbox
from regiondag.pool.process import children, look_up, read_boot_id
from regiondag.pool.sandbox import Mount


@pytest.fixture
def image(tmp_path: Path) -> Path:
    root = tmp_path / "image"
    (root / "usr/bin").mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    (root / "tmp").mkdir()
    return root


def test_layout_takes_programs_from_the_image_and_the_rest_from_the_pool(image):
    mounts = sandbox.plan_mounts(image, Path("/state/p"), [Path("/home"), Path("/data")])
    by_target = {mount.target: mount for mount in mounts}
    assert by_target["/usr"] == Mount("read-only", "/usr", f"{image}/usr")
    assert by_target["/bin"] == Mount("symlink", "/bin", "usr/bin")
    assert by_target["/tmp"] == Mount("bind", "/tmp", "/state/p/tmp")
    assert by_target["/var"].source == "/state/p/var"
    assert [mount.target for mount in mounts[-2:]] == ["/home", "/data"]


def test_bwrap_argv():
    argv = sandbox.bwrap_argv([Mount("symlink", "/bin", "usr/bin"), Mount("proc", "/proc")], ["prog", "-f"])
    text = " ".join(argv)
    assert text.startswith("bwrap --unshare-user --uid 8010 --gid 8010 --unshare-pid --as-pid-1 ")
    assert text.endswith("--symlink usr/bin /bin --proc /proc --chdir / -- prog -f")


def test_chroot_argv_carries_the_same_mounts():
    mounts = [Mount("bind", "/tmp", "/state/a b/tmp")]
    argv = sandbox.chroot_argv(mounts, Path("/state/root"), ["prog", "-f"])
    place, uid, plan, *command = argv[argv.index("regiondag.pool.chroot") + 1 :]
    assert (place, uid, command) == ("/state/root", "8010", ["prog", "-f"])
    assert [Mount(**mount) for mount in json.loads(plan)] == mounts


@pytest.mark.parametrize(
    ("mode", "ending"),
    [("bwrap", "--user --preserve-credentials --"), ("chroot", "--root --setuid 8010 --setgid 8010 --")],
)
def test_enter_argv(mode, ending):
    text = " ".join(sandbox.enter_argv(mode, 42))
    assert text.startswith("nsenter --target 42 --mount --uts --pid ")
    assert text.endswith(ending)


def test_environment_is_freed_of_the_hosts_python_and_condor():
    argv = sandbox.environment_argv(Path("/work dir"), {"USER": "x"})
    assert argv[:3] == ["env", "--chdir", "/work dir"]
    assert "PYTHONPATH" in argv
    assert "CONDOR_CONFIG" in argv
    assert argv[-1] == "USER=x"


def test_visible_folders_are_all_but_the_systems(tmp_path):
    for name in ("etc", "usr", "var", "home", "work", "var/data", "usr/share"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    extra = [tmp_path / "var/data", tmp_path / "home/me", tmp_path / "work", tmp_path / "absent"]
    assert sandbox.visible_folders(tmp_path, extra) == tuple(tmp_path / name for name in ("home", "work", "var/data"))


def test_the_systems_own_folders_never_become_visible():
    assert Path("/usr") not in sandbox.visible_folders(extra=[Path("/usr"), Path("/usr/bin")])
    assert Path("/") not in sandbox.visible_folders(extra=[Path("/")])
    assert not sandbox.is_visible(Path("/workshop"), [Path("/work")])


def test_state_folders_can_be_made_twice(tmp_path):
    sandbox.make_state_folders(tmp_path)
    (tmp_path / "var/spool/condor/job_queue.log").touch()
    sandbox.make_state_folders(tmp_path)
    assert (tmp_path / "var/spool/condor/job_queue.log").exists()
    assert (tmp_path / "var/run").readlink() == Path("/run")


def test_an_unknown_mode_is_refused():
    with pytest.raises(PoolError, match="REGIONDAG_SANDBOX is 'docker'; it can be 'bwrap' or 'chroot'"):
        sandbox.detect_mode({"REGIONDAG_SANDBOX": "docker"})


def test_a_missing_bwrap_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PoolError, match="bwrap: bwrap is not installed"):
        sandbox.detect_mode({"REGIONDAG_SANDBOX": "bwrap"})


def test_a_process_is_known_by_its_start_time():
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        process = look_up(sleeper.pid)
        assert process is not None
        assert process.is_alive()
        assert process.boot == read_boot_id()
        assert not dataclasses.replace(process, start_time=process.start_time + 1).is_alive()
        assert not dataclasses.replace(process, boot="another").is_alive()
        sleeper.terminate()
        sleeper.wait()
        assert process.wait_gone(1)
        process.send(signal.SIGKILL)  # nobody is hit


def test_children_of_a_process():
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo; wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        (child,) = children(shell.pid)
        process = look_up(child)
        assert process is not None
        process.send(signal.SIGTERM)
        assert process.wait_gone(5)
    assert look_up(shell.pid) is None


def test_programs_of_an_image_do_not_take_the_callers_htcondor_settings():
    environ = {"PATH": "/bin", "HOME": "/h", "CONDOR_CONFIG": "/dev/null", "_CONDOR_LOG": "/x", "PYTHONPATH": "/y"}
    assert sandbox.image_environment(environ) == {"PATH": f"/bin:{sandbox.SEARCH_PATH}", "HOME": "/h"}
