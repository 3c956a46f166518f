"""What a serial console says went wrong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regiondag.bake.boot import serial_console

GOOD = """\
[    0.000000] Linux version 6.12.117+deb13-cloud-amd64
[  \x1b[0;32m  OK  \x1b[0m] Started \x1b[0;1;39mssh.service\x1b[0m - OpenBSD Secure Shell server.\r
regiondag-join[412]: joined 10.88.0.1
worker login: """


def test_a_good_boot_has_neither_faults_nor_errors() -> None:
    assert serial_console.find_faults(GOOD) == []
    assert serial_console.find_errors(GOOD) == []


def test_a_dropped_unit_and_a_failed_one_are_found_behind_their_colours() -> None:
    bad = (
        "[    4.2] systemd[1]: multi-user.target: Found ordering cycle on regiondag-watch.service/start\r\n"
        "[    4.3] systemd[1]: multi-user.target: Job regiondag-watch.service/start deleted to break ordering cycle\n"
        "[\x1b[0;1;31mFAILED\x1b[0m] Failed to start \x1b[0;1;39mcondor.service\x1b[0m - Condor.\r\n"
        "[\x1b[0;1;38;5;185mDEPEND\x1b[0m] Dependency failed for condor.service\r\n"
    )
    found = serial_console.find_faults(GOOD + "\n" + bad)
    assert len(found) == 4
    assert found[0].endswith("Found ordering cycle on regiondag-watch.service/start")
    assert found[2] == "[FAILED] Failed to start condor.service - Condor."


def test_what_never_reached_the_kernel_is_found() -> None:
    assert serial_console.find_faults("error: no such device: regiondag-root.\n") == [
        "error: no such device: regiondag-root."
    ]
    assert serial_console.find_faults("No bootable device.\n") == ["No bootable device."]
    panic = "[ 3.1] Kernel panic - not syncing: VFS: Unable to mount root fs\n"
    assert (
        len(serial_console.find_faults(panic)) == 1
        and serial_console.has_panicked(panic)
        and not serial_console.has_panicked("[  OK  ] Reached")
    )


def test_the_workers_own_errors_are_found_once() -> None:
    line = "[   31.5] regiondag-join[431]: ERROR: the manager is HTCondor 25.14, this worker 23.9\n"
    assert serial_console.find_errors(line * 3) == ["regiondag-join: the manager is HTCondor 25.14, this worker 23.9"]
    assert serial_console.find_errors("regiondag-join: ERROR: no token\n") == ["regiondag-join: no token"]


def test_the_tail_leaves_out_empty_lines() -> None:
    assert serial_console.last_lines("a\n\n\r\nb\n", 1) == "  b"


@given(st.text())
def test_no_console_breaks_it(text: str) -> None:
    serial_console.find_errors(text), serial_console.find_faults(text), serial_console.last_lines(text)
