"""What a pool offers, as ads say it that may say anything."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.condor import survey_text
from regiondag.condor.access_point import AccessPoint, SubmitRule
from regiondag.condor.classads import parse_ad
from regiondag.condor.survey import GpuKind, Survey, SystemKind, python_of, survey, version_of
from regiondag.pool.pool import Pool

POOL = Pool("campus", "installed", (25, 14, 1))
ACCESS = AccessPoint({}, (), (), {"STARTER_UPDATE_INTERVAL": 300, "SHADOW_QUEUE_UPDATE_INTERVAL": 900}, "")
DEBIANS = "$CondorVersion: 23.9.6 2026-07-12 PackageID: 23.9.6+dfsg-2.1 $"
GPU = '[ DeviceName = "A100"; Capability = 8.0; GlobalMemoryMb = 40536; MaxSupportedVersion = 12040 ]'


def slot(machine: str = "w1", more: str = "", system: str = "Debian13", version: str = DEBIANS) -> Any:
    text = (
        f'Requirements = true\nName = "slot1@{machine}"\nMachine = "{machine}"\nSlotType = "Partitionable"\n'
        f'CondorVersion = "{version}"\nOpSysAndVer = "{system}"\nArch = "X86_64"\nCpus = 8\nMemory = 16384\n'
        f"Disk = 104857600\n{more}"
    )
    return parse_ad(text)


def look(*slots: Any, gpus: tuple[Any, ...] = (), samples: tuple[Any, ...] = ()) -> Survey:
    return survey(POOL, ["25.14.1"], slots, gpus, samples)


def text_of(found: Survey, access: AccessPoint = ACCESS) -> dict[str, str]:
    return dict(survey_text.describe(found, access))


def test_machines_are_counted_once_and_slots_by_what_they_have():
    found = look(slot(), slot("w1", "x = 1\n"), slot("w2", system="AlmaLinux9", version="$CondorVersion: 25.14.1 x $"))
    assert (found.machines, found.slots, found.partitionable, found.cpus, found.memory_mb) == (2, 3, 3, 24, 49152)
    assert (found.largest_cpus, found.largest_memory_mb, found.largest_disk_mb) == (8, 16384, 102400)
    assert found.startds == {"23.9.6": 1, "25.14.1": 1}
    assert found.systems == (SystemKind("Debian13 X86_64", 1, "3.13"), SystemKind("AlmaLinux9 X86_64", 1, "3.9"))
    said = text_of(found)
    assert "jobs need 3.11, so one of their own on 1 machines, or job.python: bundle" in said["Python"]
    assert said["HTCondor"] == "23.9.6, 25.14.1 on 1"


def test_gpus_of_one_kind_are_counted_together_whichever_machine_has_them():
    two = f"GPUs = 2\nGPUs_a = {GPU}\nGPUs_b = {GPU}\nAvailableGPUs = {{ GPUs_a, GPUs_b }}\n"
    flat = 'GPUs = 3\nGPUs_DeviceName = "T4"\nGPUs_Capability = 7.5\n'  # as an older HTCondor says it
    found = look(slot(), gpus=(slot("w1", two), slot("w2", two), slot("w3", flat)))
    assert found.gpus == (
        GpuKind("A100", 4, 2, "8.0", 40536, "12.4", False),
        GpuKind("T4", 3, 1, "7.5", 0, "", False),
    )
    assert text_of(found)["GPUs"] == (
        "4 A100 on 2 machines (capability 8.0, 40 GB, CUDA 12.4); 3 T4 on 1 machine (capability 7.5)"
    )


def test_debians_htcondor_with_containers_and_without_hassif_is_told_of():
    ways = "HasContainer = true\n"
    ours = slot("w3", ways, version="$CondorVersion: 25.14.1 PackageID: 25.14.1-1 $")
    found = look(slot("w1", ways), slot("w2", f"{ways}HasSIF = true\n"), ours, slot("w4"))
    assert (found.containers, found.without_sif) == ({"HasContainer": 3, "HasSIF": 1}, 1)
    assert (
        "HasContainer on 3; HasSIF on 1; no job with container_image = X.sif matches 1 of them"
        in text_of(found)["containers"]
    )


def test_plugins_and_pythons():
    methods = 'HasFileTransferPluginMethods = "https,file, osdf"\n'
    samples = (slot("w1", 'Python3Version = "3.12"\n'), slot("w2", "HasPython = true\n"))
    found = look(slot("w1", methods), slot("w2", 'HasFileTransferPluginMethods = "https"\n'), samples=samples)
    assert found.plugins == {"https": 2, "file": 1, "osdf": 1}
    assert found.pythons == {"Python3Version": "3.12", "HasPython": "True"}
    assert text_of(found)["URLs"] == "https on 2; file, osdf on 1"


def test_an_empty_pool_and_what_its_access_point_says():
    rules = (SubmitRule("Small", "RequestMemory < 9", '"too large"', True), SubmitRule("P", "X == 1", "", False))
    access = AccessPoint({"MAX_JOBS_PER_OWNER": "9"}, rules, ("SetX",), ACCESS.intervals, "w1")
    said = text_of(look(), access)
    assert said["machines"].startswith("none now")
    assert said["warns"] == "jobs that do not meet Small: RequestMemory < 9: too large"
    assert said["refuses"] == "jobs that do not meet P: X == 1"
    assert said["changes"] == "jobs as they come: SetX" and said["limits"] == "MAX_JOBS_PER_OWNER = 9"
    assert "(w1 says so); ages up to 20 min are usual here" in said["progress"]
    unknown = AccessPoint({}, (), (), {"STARTER_UPDATE_INTERVAL": None, "SHADOW_QUEUE_UPDATE_INTERVAL": 5}, "")
    assert text_of(look(), unknown)["progress"] == "the two intervals are not known"


@pytest.mark.parametrize(
    ("system", "python"), [("Debian12", "3.11"), ("Rocky9", "3.9"), ("Ubuntu99", ""), ("", ""), ("a b", "")]
)
def test_which_python_a_system_brings(system, python):
    assert python_of(system) == python


@given(
    st.sampled_from(["CondorVersion", "OpSysAndVer", "Cpus", "GPUs", "GPUs_DeviceName", "GPUs_MaxSupportedVersion"])
    | st.sampled_from(["HasFileTransferPluginMethods", "Memory", "GPUs_Capability", "Machine", "AvailableGPUs"]),
    st.sampled_from(['real("INF")', 'real("NaN")', "1e308", "-5", "{ 1, [ a = 2 ] }", "undefined", "error", "true"])
    | st.text(st.characters(codec="ascii", exclude_characters='"\\\n\r\0'), max_size=300).map(lambda t: f'"{t}"'),
)
def test_whatever_a_machine_says_what_is_shown_is_short_and_printable(name, value):
    ad = parse_ad(f'Requirements = true\nName = "s"\n{name} = {value}\n')
    found = look(*[ad] * (ad is not None), gpus=(ad,) * (ad is not None), samples=(ad,) * (ad is not None))
    for text in text_of(found).values():
        assert text.isprintable() and len(text) < 600
    assert found.cpus >= 0 and version_of(parse_ad("Requirements = true\n")) == "?"


def test_machines_say_which_gpus_they_do_not_offer():
    sick = 'RegiondagSickGPUs = "GPU-a0223334: XID 79, fell off the bus"\n'
    found = look(
        slot("w1", 'RegiondagSickGPUs = "none"\n'), slot("w2", sick), slot("w3"), slot("w4", sick[:-2] + '\033[2J"\n')
    )
    assert list(found.sick_gpus) == ["w2", "w4"]
    lines = [text for label, text in survey_text.describe(found, ACCESS) if label == "sick GPUs"]
    assert lines[0] == "w2 does not offer GPU-a0223334: XID 79, fell off the bus"
    assert "\033" not in lines[1]
    assert "sick GPUs" not in text_of(look(slot()))
