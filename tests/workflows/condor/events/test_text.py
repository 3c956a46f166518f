"""Single events of HTCondor's logs, taken apart."""

from __future__ import annotations

from datetime import datetime

import pytest

from regiondag.condor.events.text import (
    Event,
    Resource,
    attributes_of,
    code_of,
    ending_of,
    has_saved,
    host_of,
    memory_of,
    node_of,
    parse_events,
    reason_of,
    resources_of,
    slot_of,
)

START = """001 (043.007.000) 2026-11-22 05:34:05 Job executing on host: <10.0.0.7:9618?noUDP&alias=worker-7>
\tSlotName: slot1_2@node7.example.org
\tCUDADriverVersion = 13.0
\tEC2InstanceType = "g5.xlarge"
\tGPUs = 2
\tGPUs_GPU_1a = [ Id = "GPU-1a"; DeviceName = "NVIDIA \\"A10G\\""; ]
...
"""


def event(text: str) -> Event:
    return Event(1, "1.0", 0.0, text)


def test_a_start():
    [start] = parse_events(START)
    assert (start.code, start.job) == (1, "43.7")
    assert start.time == datetime(2026, 11, 22, 5, 34, 5).timestamp()
    assert start.title.startswith("Job executing on host: <10.0.0.7") and start.body.startswith("\tSlotName")
    slot = slot_of(start)
    assert slot == "slot1_2@node7.example.org" and slot_of(event("Job executing")) == ""
    assert host_of(start, slot) == "node7.example.org"
    assert host_of(start, "slot1_2") == "worker-7"
    assert host_of(event("on host: <10.0.0.7:9618?x>"), "") == "10.0.0.7"
    assert host_of(event("on host"), "") == ""
    assert attributes_of(start) == {
        "CUDADriverVersion": "13.0",
        "EC2InstanceType": "g5.xlarge",
        "GPUs": "2",
        "DeviceName": 'NVIDIA "A10G"',
    }
    named = event('x\n\tGPUs_DeviceName = "A"\n\tGPUs_1 = [ DeviceName = "B"; ]')
    assert attributes_of(named) == {"GPUs_DeviceName": "A"}


def test_an_event_ends_with_three_dots():
    assert list(parse_events(START.removesuffix("...\n"))) == []
    assert [one.code for one in parse_events(START + START.replace("001", "005", 1))] == [1, 5]


@pytest.mark.parametrize(
    "torn", ["005 (042.000.000) 2026-11-22 05:", "005 (042.000.000) 2026-11-22 05:33:00 Job ter\n"]
)
def test_the_last_head_of_a_torn_block_counts(torn):
    [found] = parse_events(torn + START)
    assert (found.code, found.job) == (1, "43.7")


def test_the_node_of_a_submission():
    assert node_of(event("Job submitted\n    DAG Node: germany_t0001")) == "germany_t0001"
    assert node_of(event('Job submitted\n    DAGNodeName = "malta_final"')) == "malta_final"
    assert node_of(event("Job submitted")) == ""


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("(1) Normal termination (return value 75)", (75, None)),
        ("(0) Abnormal termination (signal 9)", (None, 9)),
        ("Job terminated.", (None, None)),
    ],
)
def test_how_a_job_ended(text, ending):
    assert ending_of(event(f"Job terminated.\n\t{text}")) == ending


def test_codes_of_a_hold_and_its_reason():
    held = event("Job was held.\n\tError from slot1@a: no room\n\tCode 13 Subcode 28")
    assert code_of(held) == (13, 28) and reason_of(held) == "Error from slot1@a: no room"
    assert code_of(event("Job was held.")) == (0, 0)
    figures = "Job was evicted.\n\t(0) CPU times\n\t\tUsr 0 00:00:00\n\t12  -  Run Bytes Sent By Job\n"
    assert reason_of(event(f"{figures}\tReason: claim deactivated")) == "claim deactivated"
    assert reason_of(event(f"{figures}\tPartitionable Resources : Usage\n\tnot a reason")) == ""
    assert reason_of(event(figures)) == ""


@pytest.mark.parametrize(
    ("text", "back"),
    [
        ("(1) Job was checkpointed.", True),
        ("(0) Job was not checkpointed.\n\t0  -  Run Bytes Sent By Job", False),
        ("(0) Job was not checkpointed.\n\t1  -  Run Bytes Sent By Job", True),
        ("(0) Job was not checkpointed.", False),
    ],
)
def test_what_an_eviction_brought_back(text, back):
    assert has_saved(event(f"Job was evicted.\n\t{text}")) is back


def test_figures():
    assert memory_of(event("Image size\n\t17  -  MemoryUsage of job (MB)")) == 17
    assert memory_of(event("Image size")) is None
    table = "Job terminated\n\tPartitionable Resources : Usage Request Allocated\n\t"
    rows = "   Cpus  : 0.5 2 4\n\t   Disk (KB) : 10 20\n\t   Memory (MB) : 7\n\t   Gpus : none 1 1\n"
    assert resources_of(event(table + rows)) == {
        "cpus": Resource(0.5, 2),
        "disk": Resource(None, 10),
        "memory": Resource(7, None),
    }
    assert resources_of(event("Job terminated\n\t   Cpus : 1 2 3\n")) == {}
