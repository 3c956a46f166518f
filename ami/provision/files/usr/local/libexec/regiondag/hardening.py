"""Check that a worker is as closed as ami/hardening.md says: an ERROR line for each broken rule, then exit code 1.

    sudo /usr/local/libexec/regiondag/python /usr/local/libexec/regiondag/hardening.py

Changes nothing, and looks at every file of the root file system. `regiondag bake test` runs it on the machine that it
boots, the recipe, with --files, on the disk that it makes. The rules are of the kind that CIS benchmarks have, as far
as they make sense where nobody logs in.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import hardening_files
from hardening_files import read

NAME = "regiondag-hardening"
SHOWN = 5  # findings of a rule
LISTENERS = {"sshd": "22", "systemd": "22"}  # who else may listen: by name, at which port; HTCondor's daemons at any
CONDOR = "condor_"
SYSCTL: Mapping[str, tuple[str, ...]] = {
    "fs.protected_fifos": ("1", "2"),
    "fs.protected_hardlinks": ("1",),
    "fs.protected_regular": ("1", "2"),
    "fs.protected_symlinks": ("1",),
    "fs.suid_dumpable": ("0",),
    "kernel.dmesg_restrict": ("1",),
    "kernel.kptr_restrict": ("1", "2"),
    "kernel.perf_event_paranoid": ("2", "3", "4"),
    "kernel.randomize_va_space": ("2",),
    "kernel.unprivileged_bpf_disabled": ("1", "2"),
    "net.ipv4.conf.all.accept_source_route": ("0",),
    "net.ipv4.conf.all.rp_filter": ("1", "2"),
    "net.ipv4.conf.*.accept_redirects": ("0",),  # of each interface, too: one suffices to take them
    "net.ipv4.conf.*.secure_redirects": ("0",),
    "net.ipv4.conf.*.send_redirects": ("0",),
    "net.ipv4.icmp_echo_ignore_broadcasts": ("1",),
    "net.ipv4.icmp_ignore_bogus_error_responses": ("1",),
    "net.ipv4.ip_forward": ("0",),
    "net.ipv4.tcp_syncookies": ("1",),
    "net.ipv6.conf.*.accept_redirects": ("0",),
    "net.ipv6.conf.all.forwarding": ("0",),
}
SSHD: Mapping[str, tuple[str, ...]] = {
    "permitrootlogin": ("no",),
    "passwordauthentication": ("no",),
    "kbdinteractiveauthentication": ("no",),
    "permitemptypasswords": ("no",),
    "x11forwarding": ("no",),
    "maxauthtries": ("1", "2", "3", "4"),
    "logingracetime": ("30", "60"),
    "ignorerhosts": ("yes",),
    "hostbasedauthentication": ("no",),
    "permituserenvironment": ("no",),
}
PROTOCOLS = ("dccp", "rds", "sctp", "tipc")  # which any job could have the kernel load by opening a socket


def run(*argv: str) -> str:
    """Return what a program prints; nothing where there is no such program."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60).stdout
    except OSError:
        return ""


def check_sshd(_root: Path) -> Iterator[str]:
    """SSH takes keys alone, never for root, and forwards no X11."""
    said = dict(line.split(" ", 1) for line in run("/usr/sbin/sshd", "-T").splitlines() if " " in line)
    yield from (f"{name} is {said.get(name)}" for name, legal in SSHD.items() if said.get(name) not in legal)


def check_sysctl(root: Path, begin: str) -> Iterator[str]:
    """Compare the kernel's settings whose names begin so."""
    settings = root / "proc/sys"
    for name, legal in SYSCTL.items():
        for path in settings.glob(name.replace(".", "/")) if name.startswith(begin) else ():
            if (seen := read(path).strip()) not in legal:
                yield f"{path.relative_to(settings)} is {seen}"


def check_network(root: Path) -> Iterator[str]:
    """The kernel takes no redirects or source routes, forwards nothing, and drops forged senders."""
    yield from check_sysctl(root, "net.")


def check_kernel(root: Path) -> Iterator[str]:
    """The kernel shows its log and addresses to root alone, places memory at random, keeps BPF and perf back."""
    yield from check_sysctl(root, "kernel.")


def check_links(root: Path) -> Iterator[str]:
    """Nobody is led by another's links or pipes in a folder that all may write to."""
    yield from check_sysctl(root, "fs.protected")


def check_core(root: Path) -> Iterator[str]:
    """Neither programs with other rights nor HTCondor's daemons, which hold tokens, leave their memory in a file."""
    yield from check_sysctl(root, "fs.suid")
    for folder in processes(root, CONDOR):
        limit = re.search(r"^Max core file size +(\S+) +(\S+)", read(folder / "limits"), re.M)
        if limit and limit.groups() != ("0", "0"):
            yield f"{read(folder / 'comm').strip()} may write {' to '.join(limit.groups())} bytes"


def check_umask(root: Path) -> Iterator[str]:
    """What people at a shell create is not readable by others; what daemons create others do not write."""
    found = re.findall(r"^UMASK\s+(\S+)", read(root / "etc/login.defs"), re.M)
    if found != ["027"]:
        yield f"UMASK of /etc/login.defs is {found}"
    for folder in processes(root, CONDOR):
        umask = re.search(r"^Umask:\s*(\d+)", read(folder / "status"), re.M)
        if umask and int(umask[1], 8) & 0o022 != 0o022:
            yield f"{read(folder / 'comm').strip()} has {umask[1]}"


def check_modules(root: Path) -> Iterator[str]:
    """The kernel loads no protocol that a socket of a job's would ask for and nobody uses."""
    settings = "\n".join(read(path) for path in (root / "etc/modprobe.d").glob("*.conf"))
    loaded = read(root / "proc/modules")
    for name in PROTOCOLS:
        if f"\ninstall {name} /bin/false\n" not in f"\n{settings}\n" or f"\n{name} " in f"\n{loaded}":
            yield f"{name} can be loaded"


def check_firewall(_root: Path) -> Iterator[str]:
    """Jobs do not reach the metadata service, and with it the credentials of the machine's role."""
    rules = run("/usr/sbin/nft", "list", "ruleset")
    for address in ("169.254.169.254", "fd00:ec2::254"):
        if not re.search(rf"daddr {re.escape(address)} meta skuid != 0 .*reject", rules):
            yield f"no rule for {address}"


def check_mounts(root: Path) -> Iterator[str]:
    """No device files and no setuid programs where everybody may write in memory."""
    mounted = {row[1]: row[3].split(",") for row in map(str.split, read(root / "proc/mounts").splitlines())}
    for place in ("/dev/shm", "/tmp", "/run/lock"):  # noqa: S108 - nothing is written there
        if place in mounted and not {"nosuid", "nodev"} <= set(mounted[place]):
            yield f"{place} is mounted with {','.join(mounted[place])}"


def check_time(root: Path) -> Iterator[str]:
    """The clock is kept, so that logs and tokens can be trusted."""
    if not list(processes(root, "chronyd")):
        yield "chronyd does not run"


def processes(root: Path, begin: str) -> Iterator[Path]:
    """Yield the folders in /proc of programs whose names begin so."""
    yield from (path for path in (root / "proc").glob("[0-9]*") if read(path / "comm").startswith(begin))


def check_listeners(root: Path) -> Iterator[str]:
    """Nothing but HTCondor and SSH listens to the network; and who asks for an address."""
    owners = socket_owners(root)
    for protocol, listening in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in read(root / "proc/net" / protocol).splitlines()[1:]:
            _, local, remote, state, *_, inode = line.split()[:10]
            address, port = local.split(":")
            if state != listening or is_loopback(address) or (protocol[:3] == "udp" and int(remote[-4:], 16)):
                continue
            name, number = owners.get(inode, "?"), str(int(port, 16))
            dhcp = protocol in ("udp", "udp6") and number in ("68", "546")
            if not (name.startswith(CONDOR) or LISTENERS.get(name) == number or dhcp):
                yield f"{name} at {protocol} {number}"


def is_loopback(address: str) -> bool:
    """Whether an address of /proc/net is this machine's own: 127.0.0.0/8, ::1, or the former within IPv6.

    >>> is_loopback("3500007F"), is_loopback("00000000"), is_loopback("00000000000000000000000001000000")
    (True, False, True)
    """
    return (
        address[-2:] == "7F" if len(address) == 8 else address in ("0" * 24 + "01000000", "0" * 16 + "FFFF00000100007F")
    )


def socket_owners(root: Path) -> dict[str, str]:
    """Return the numbers of open sockets, and the programs that hold them."""
    owners = {}
    for folder in (root / "proc").glob("[0-9]*"):
        try:
            links = [str(path.readlink()) for path in (folder / "fd").iterdir()]
        except OSError:
            continue  # it has ended
        for link in links:
            if link.startswith("socket:["):
                owners[link[8:-1]] = read(folder / "comm").strip()
    return owners


CHECKS = (
    *(check_sshd, check_network, check_kernel, check_links, check_core, check_umask, check_modules, check_firewall),
    *(check_mounts, check_time, check_listeners),
)


def main(arguments: list[str] | None = None) -> int:
    """Check, and say it."""
    parser = argparse.ArgumentParser(
        prog="hardening", description="Check that this worker is as closed as it should be."
    )
    parser.add_argument("--root", type=Path, default=Path("/"), help="where it is (default: %(default)s)")
    parser.add_argument("--files", action="store_true", help="of its files alone: it has not booted")
    options = parser.parse_args(arguments)
    checks = (*hardening_files.CHECKS, *(() if options.files else CHECKS))
    broken = 0
    for check in checks:
        found = list(check(options.root))
        if found:
            broken += 1
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            rule = str(check.__doc__).splitlines()[0].rstrip(".")
            print(f"{NAME}: ERROR: {rule}: {'; '.join(found[:SHOWN])}{more}", flush=True)
    print(f"{NAME}: {len(checks) - broken} of {len(checks)} rules are kept", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
