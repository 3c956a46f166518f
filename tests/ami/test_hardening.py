"""Whether a worker is closed: a machine of files that is, and each door opened on its own."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from regiondag.bake.disk import ROOT_START, SECTOR
from tests.ami.conftest import FILES, PROVISION, load

SSHD = """permitrootlogin no
passwordauthentication no
kbdinteractiveauthentication no
permitemptypasswords no
x11forwarding no
maxauthtries 4
logingracetime 60
ignorerhosts yes
hostbasedauthentication no
permituserenvironment no
"""
FIREWALL = """table inet regiondag {
	chain output {
		ip daddr 169.254.169.254 meta skuid != 0 counter packets 0 bytes 0 reject
		ip6 daddr fd00:ec2::254 meta skuid != 0 counter packets 0 bytes 0 reject
"""
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
# A line of /proc/net: local address and port, remote ones, state, inode.
SOCKET = " 0: {} {} {} 00000000:00000000 00:00000000 00000000 0 0 {} 1\n"
LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units\nMax core file size        {}  bytes\n"
)

owned_by_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of root's")


@pytest.fixture
def hardening():
    return load("hardening")


@pytest.fixture
def on_disk(hardening):
    module = load("hardening_files")
    module.files.cache_clear()
    return module


@pytest.fixture
def root(tmp_path, hardening, monkeypatch) -> Path:
    """A machine that has booted and is closed, as far as files can be one."""
    write(tmp_path, "etc/passwd", "root:x:0:0:root:/root:/bin/bash\ncondor:x:100:101::/var:/usr/sbin/nologin\n")
    write(tmp_path, "etc/group", "root:x:0:\n")
    write(tmp_path, "etc/shadow", "root:!*:20785:0:99999:7:::\ncondor:!:20785::::::\n", 0o640)
    write(tmp_path, "etc/gshadow", "root:*::\n", 0o640)
    write(tmp_path, "etc/regiondag/worker.json", "{}", 0o600)
    write(tmp_path, "etc/login.defs", "HOME_MODE\t0700\nUMASK\t027\n")
    write(tmp_path, "usr/bin/passwd", "", 0o4755)
    write(tmp_path, "etc/modprobe.d/a.conf", (FILES / "etc/modprobe.d/regiondag-hardening.conf").read_text())
    (tmp_path / "root").mkdir(mode=0o700)
    (tmp_path / "var/tmp").mkdir(parents=True)
    (tmp_path / "var/tmp").chmod(0o1777)
    for name, legal in hardening.SYSCTL.items():
        write(tmp_path / "proc/sys", name.replace(".", "/").replace("*", "eth0"), f"{legal[0]}\n")
    write(tmp_path, "proc/mounts", "tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n/dev/nvme0n1p3 / ext4 rw 0 0\n")
    process(tmp_path, 10, "condor_master", {"status": "Umask:\t0022\n", "limits": LIMITS.format("0      0")}, 7)
    process(tmp_path, 11, "chronyd", {}, 8)
    process(tmp_path, 12, "sshd", {}, 9)
    process(tmp_path, 13, "evil", {}, 66)
    tcp = [
        SOCKET.format("00000000:2592", "00000000:0000", "0A", 7),
        SOCKET.format("00000000:0016", "00000000:0000", "0A", 9),
    ]
    write(tmp_path, "proc/net/tcp", HEAD + "".join(tcp))
    write(tmp_path, "proc/net/udp", HEAD + SOCKET.format("0200000A:9C40", "FEA9FEA9:007B", "07", 8))
    monkeypatch.setattr(hardening, "run", lambda program, *_: SSHD if program.endswith("sshd") else FIREWALL)
    return tmp_path


def write(root: Path, name: str, text: str, mode: int = 0o644) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    (root / name).chmod(mode)


def process(root: Path, number: int, name: str, files: dict[str, str], socket: int) -> None:
    for file, text in {"comm": f"{name}\n", **files}.items():
        write(root, f"proc/{number}/{file}", text)
    (root / f"proc/{number}/fd").mkdir()
    (root / f"proc/{number}/fd/3").symlink_to(f"socket:[{socket}]")


def listening(protocol: str, address: str, inode: int = 66) -> tuple[str, str]:
    state = "0A" if protocol.startswith("tcp") else "07"
    nobody = "0" * (32 if protocol.endswith("6") else 8) + ":0000"
    return f"proc/net/{protocol}", HEAD + SOCKET.format(address, nobody, state, inode)


@owned_by_root
def test_a_closed_machine_keeps_all_rules(hardening, on_disk, root, capsys):
    assert hardening.main(["--root", str(root)]) == 0
    [line] = capsys.readouterr().out.splitlines()
    count = len(hardening.CHECKS) + len(on_disk.CHECKS)
    assert line == f"regiondag-hardening: {count} of {count} rules are kept"
    assert hardening.main(["--files", "--root", str(root)]) == 0
    assert f"{len(on_disk.CHECKS)} of {len(on_disk.CHECKS)} rules are kept" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("check", "name", "text", "said"),
    [
        ("network", "proc/sys/net/ipv4/conf/eth0/accept_redirects", "1\n", "net/ipv4/conf/eth0/accept_redirects is 1"),
        ("network", "proc/sys/net/ipv4/ip_forward", "1\n", "net/ipv4/ip_forward is 1"),
        ("kernel", "proc/sys/kernel/kptr_restrict", "0\n", "kernel/kptr_restrict is 0"),
        ("links", "proc/sys/fs/protected_regular", "0\n", "fs/protected_regular is 0"),
        ("core", "proc/sys/fs/suid_dumpable", "2\n", "fs/suid_dumpable is 2"),
        ("core", "proc/10/limits", LIMITS.format("0   unlimited"), "condor_master may write 0 to unlimited bytes"),
        ("umask", "proc/10/status", "Umask:\t0000\n", "condor_master has 0000"),
        ("umask", "etc/login.defs", "#UMASK 027\n", "UMASK of /etc/login.defs is []"),
        ("modules", "etc/modprobe.d/a.conf", "install dccp /bin/false\n", "rds can be loaded"),
        ("modules", "proc/modules", "nvme 1 0\nsctp 1 0 - Live\n", "sctp can be loaded"),
        ("mounts", "proc/mounts", "tmpfs /dev/shm tmpfs rw,nosuid 0 0\n", "/dev/shm is mounted with rw,nosuid"),
        ("time", "proc/11/comm", "other\n", "chronyd does not run"),
        ("listeners", *listening("tcp", "00000000:1F90"), "evil at tcp 8080"),
        ("listeners", *listening("tcp6", "0" * 32 + ":1F90"), "evil at tcp6 8080"),
        ("listeners", *listening("udp", "00000000:14EB"), "evil at udp 5355"),
        ("listeners", *listening("tcp", "00000000:0019", 9), "sshd at tcp 25"),
        ("listeners", *listening("tcp", "00000000:1F90", 1234), "? at tcp 8080"),
    ],
)
def test_each_door_that_a_running_machine_can_have_open(hardening, root, check, name, text, said):
    found = getattr(hardening, f"check_{check}")
    assert list(found(root)) == []
    write(root, name, text)
    assert said in list(found(root))


def test_what_listens_to_the_machine_itself_alone_is_no_door(hardening, root):
    for protocol, address in (
        ("tcp", "3500007F:0035"),
        ("tcp6", "00000000000000000000000001000000:0035"),
        ("tcp6", "0000000000000000FFFF00000100007F:0035"),
        ("udp", "00000000:0044"),  # DHCP's client
        ("udp6", "0" * 32 + ":0222"),
    ):
        write(root, *listening(protocol, address))
    assert list(hardening.check_listeners(root)) == []


@pytest.mark.parametrize("name", ["permitrootlogin", "passwordauthentication", "x11forwarding"])
def test_a_door_of_sshs(hardening, root, name, monkeypatch):
    assert list(hardening.check_sshd(root)) == []
    said = SSHD.replace(f"{name} no", f"{name} yes")
    monkeypatch.setattr(hardening, "run", lambda *_: said)
    assert list(hardening.check_sshd(root)) == [f"{name} is yes"]
    monkeypatch.setattr(hardening, "run", lambda *_: "")  # it does not answer
    assert len(list(hardening.check_sshd(root))) == len(hardening.SSHD)


def test_a_firewall_that_was_not_loaded(hardening, root, monkeypatch):
    assert list(hardening.check_firewall(root)) == []
    monkeypatch.setattr(hardening, "run", lambda *_: FIREWALL.replace("ip daddr", "# ip daddr").replace("reject", ""))
    assert list(hardening.check_firewall(root)) == ["no rule for 169.254.169.254", "no rule for fd00:ec2::254"]


@owned_by_root
@pytest.mark.parametrize(
    ("check", "name", "text", "mode", "said"),
    [
        ("passwords", "etc/shadow", "root:$y$j9T$x:1::::::\n", 0o640, "root has one"),
        ("passwords", "etc/shadow", "root::1::::::\n", 0o640, "root has one"),
        ("root", "etc/passwd", "root:x:0:0::/:/bin/sh\ntoor:x:0:0::/:/bin/sh\n", 0o644, "toor is, too"),
        ("shells", "etc/passwd", "games:x:5:60::/:/bin/sh\n", 0o644, "games has /bin/sh"),
        ("account_files", "etc/shadow", "", 0o644, "/etc/shadow is 644 of 0"),
        ("account_files", "etc/passwd", "", 0o666, "/etc/passwd is 666 of 0"),
        ("secrets", "etc/regiondag/worker.json", "{}", 0o644, "worker.json is 644 of 0"),
        ("secrets", "etc/condor/tokens.d/pool", "x", 0o640, "tokens.d/pool is 640 of 0"),
        ("secrets", "etc/ssh/ssh_host_ed25519_key", "x", 0o644, "ssh_host_ed25519_key is 644 of 0"),
        ("world_writable", "etc/cron.d/job", "x", 0o666, "etc/cron.d/job"),
        ("setuid", "usr/local/bin/tool", "x", 0o4755, "tool is 4755"),
        ("setuid", "usr/local/bin/tool", "x", 0o2755, "tool is 2755"),
    ],
)
def test_each_door_that_files_can_be(on_disk, root, check, name, text, mode, said):
    found = getattr(on_disk, f"check_{check}")
    assert list(found(root)) == []
    on_disk.files.cache_clear()
    write(root, name, text, mode)
    assert said in "\n".join(found(root))


def test_homes_and_folders_for_all(on_disk, root):
    (root / "root").chmod(0o755)
    (root / "var/tmp").chmod(0o777)
    assert list(on_disk.check_homes(root)) == [f"{root}/root is open to others"]
    assert list(on_disk.check_world_writable(root)) == [f"{root}/var/tmp"]


def test_files_of_others(on_disk, root, monkeypatch):
    def file(name: str, uid: int, gid: int, mode: int) -> tuple[Path, SimpleNamespace]:
        return root / name, SimpleNamespace(st_uid=uid, st_gid=gid, st_mode=stat.S_IFREG | mode)

    write(root, "etc/passwd", "root:x:0:0::/:/bin/sh\ncondor:x:100:0::/:/bin/sh\nnet:x:998:0::/:/bin/sh\n")
    found = [file("usr/bin/a", 100, 0, 0o755), file("usr/bin/b", 0, 50, 0o775), file("var/c", 100, 0, 0o644)]
    found.append(file("etc/systemd/network/10-cloud-init-eth0.network", 998, 0, 0o644))
    monkeypatch.setattr(on_disk, "files", lambda _: found)
    programs = "\n".join(on_disk.check_programs(root))
    assert "usr/bin/a is 755 of 100:0" in programs and "usr/bin/b is 775 of 0:50" in programs
    assert "var/c" not in programs and "cloud-init" not in programs
    assert list(on_disk.check_owners(root)) == [f"{root}/usr/bin/b is of 0:50"]


def test_capabilities_of_programs(on_disk, root, monkeypatch):
    assert list(on_disk.check_capabilities(root)) == []
    monkeypatch.setattr(on_disk.os, "getxattr", lambda path, name: b"\1")
    assert list(on_disk.check_capabilities(root)) == [f"{root}/usr/bin/passwd"]


def test_many_findings_are_one_line(hardening, root, capsys, monkeypatch):
    def check_much(_root):
        """Nothing is open.

        Not said.
        """
        return (str(number) for number in range(9))

    monkeypatch.setattr(hardening, "CHECKS", [check_much])
    monkeypatch.setattr(hardening.hardening_files, "CHECKS", [])
    assert hardening.main(["--root", str(root)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "regiondag-hardening: ERROR: Nothing is open: 0; 1; 2; 3; 4 and 4 more",
        "regiondag-hardening: 0 of 1 rules are kept",
    ]


def test_the_page_has_every_rule_in_its_order(hardening, on_disk):
    page = (PROVISION.parent / "hardening.md").read_text()
    rules = [str(check.__doc__).splitlines()[0].rstrip(".") for check in (*on_disk.CHECKS, *hardening.CHECKS)]
    assert re.findall(r"^\| \d+ \| ([^|]*[^| ]) +\|", page, re.M) == rules


def test_the_recipe_sets_what_is_asked(hardening):
    """Each line of the settings is a rule, with a value that it allows."""
    lines = (FILES / "etc/sysctl.d/50-regiondag.conf").read_text().splitlines()
    settings = dict(line.split(" = ") for line in lines if line and not line.startswith("#"))
    for name, value in settings.items():
        legal = hardening.SYSCTL.get(name) or hardening.SYSCTL[name.replace("*", "all")]
        assert value in legal
    ssh = dict(
        line.lower().split() for line in (FILES / "etc/ssh/sshd_config.d/50-regiondag.conf").read_text().splitlines()
    )
    assert all(value in hardening.SSHD[name] for name, value in ssh.items())


def test_the_page_says_where_on_the_disk_the_root_file_system_begins():
    page = (PROVISION.parent / "hardening.md").read_text()
    assert re.findall(r"disk\.raw\?offset=(\d+)", page) == [str(ROOT_START * SECTOR)]
