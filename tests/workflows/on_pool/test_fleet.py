"""What `regiondag fleet` asks a real HTCondor: idle jobs that want GPUs, and the slots of a fleet's workers."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from regiondag.fleet.demand import GpuRequest, Worker
from regiondag.fleet.queue import query_gpu_requests, query_workers
from regiondag.pool.pool import Pool

pytestmark = [pytest.mark.condor, pytest.mark.slow]

SUBMIT = """
executable = /bin/true
transfer_executable = False
should_transfer_files = YES
log = jobs.log
requirements = TARGET.NoSuchMachine =?= True
request_cpus = 2
request_memory = 3GB
request_disk = 1MB
{gpus}
queue {count}
"""

ROOMY = """\
Requirements = TARGET.JobUniverse == 5
Arch = "X86_64"
OpSys = "LINUX"
HasFileTransfer = True
Cpus = 0
TotalSlotCpus = 8
Memory = 0
TotalSlotMemory = 64000
Disk = 0
TotalSlotDisk = 100000000
"""

SLOT = """
MyType = "Machine"
Name = "{name}@{instance}"
MyAddress = "<127.0.0.1:9>"
EC2InstanceID = "{instance}"
RegiondagFleet = "{fleet}"
{more}
"""


def shell(pool: Pool, text: str, cwd: Path) -> str:
    done = pool.run(["sh", "-c", text], cwd, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(autouse=True)
def empty_queue(pool: Pool) -> Iterator[None]:
    """What is asked here counts all jobs of the pool; an earlier test's may still be leaving, or have been left."""
    clear(pool)
    yield
    clear(pool)


def clear(pool: Pool) -> None:
    shell(pool, "condor_rm -all >/dev/null 2>&1 || true", Path("/"))
    wait_for(lambda: not shell(pool, "condor_q -allusers -af ClusterId", Path("/")))


def test_idle_jobs_that_want_gpus(pool, run_area):
    for name, gpus, count in (("none", "", 3), ("one", "request_gpus = 1", 2), ("four", "request_gpus = 4", 1)):
        (run_area / f"{name}.sub").write_text(SUBMIT.format(gpus=gpus, count=count))
        shell(pool, f"condor_submit -batch-name fleet-test {name}.sub", run_area)
    found = sorted(query_gpu_requests(pool, "demo"), key=lambda request: request.gpus)
    assert found == [GpuRequest(1, 2, 3072)] * 2 + [GpuRequest(4, 2, 3072)]
    shell(pool, "condor_hold -constraint 'RequestGPUs =?= 4'", run_area)
    assert query_gpu_requests(pool, "demo") == [GpuRequest(1, 2, 3072)] * 2


def test_jobs_that_the_workers_refuse(pool, run_area):
    """A job is refused for its own requirements, and for the slot's; without a worker nobody refuses."""
    free = 'SlotType = "Partitionable"\nState = "Unclaimed"\nTotalSlotGPUs = 4\nGPUs = 0\n' + ROOMY
    picky = free.replace("Requirements = ", "Requirements = TARGET.RequestGPUs > 2 && ")
    for name, machine in (("ours", 'TARGET.RegiondagFleet =?= "demo"'), ("nobodys", "TARGET.NoSuchMachine =?= True")):
        text = SUBMIT.replace("TARGET.NoSuchMachine =?= True", machine)
        (run_area / f"{name}.sub").write_text(text.format(gpus="request_gpus = 1", count=2))
        shell(pool, f"condor_submit -batch-name fleet-test {name}.sub", run_area)
    job = GpuRequest(1, 2, 3072)
    refused = dataclasses.replace(job, refused=True)
    unasked = query_gpu_requests(pool, "demo")
    assert unasked == [job] * 4
    assert {one.job for one in unasked} == set(job_numbers(pool))
    with advertised(pool, run_area, [("slot1", "i-1", "demo", free)]):
        assert sorted(query_gpu_requests(pool, "demo"), key=repr) == [job] * 2 + [refused] * 2
        assert query_gpu_requests(pool, "other") == [job] * 4
    with advertised(pool, run_area, [("slot1", "i-1", "demo", picky)]):
        assert query_gpu_requests(pool, "demo") == [refused] * 4
    # One that drains refuses everything, which says nothing about a new worker.
    with advertised(pool, run_area, [("slot1", "i-1", "demo", picky + 'RegiondagDrain = "notice"\n')]):
        assert query_gpu_requests(pool, "demo") == [job] * 4


@contextmanager
def advertised(pool: Pool, folder: Path, slots: Sequence[tuple[str, str, str, str]]) -> Iterator[None]:
    """Let the collector know these slots (name, instance, fleet, more) while the block runs."""
    names = {f"{name}@{instance}" for name, instance, *_ in slots}
    for number, (name, instance, fleet, more) in enumerate(slots):
        (folder / f"{number}.ad").write_text(SLOT.format(name=name, instance=instance, fleet=fleet, more=more))
        shell(pool, f"condor_advertise -tcp UPDATE_STARTD_AD {number}.ad", folder)
    try:
        wait_for(lambda: names <= set(query_slot_names(pool)))
        yield
    finally:
        for number, (name, instance, *_) in enumerate(slots):
            query = f'MyType = "Query"\nTargetType = "Machine"\nRequirements = Name == "{name}@{instance}"\n'
            (folder / f"{number}.query").write_text(query)
            shell(pool, f"condor_advertise -tcp INVALIDATE_STARTD_ADS {number}.query", folder)
        wait_for(lambda: not names & set(query_slot_names(pool)))


def job_numbers(pool: Pool) -> list[str]:
    return shell(pool, "condor_q -constraint 'JobBatchName =?= \"fleet-test\"' -af:j JobStatus", Path("/")).split()[::2]


def query_slot_names(pool: Pool) -> list[str]:
    return shell(pool, "condor_status -af Name", Path("/")).split()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_slots_of_a_fleets_workers(pool, run_area):
    slots = [
        ("slot1", "i-1", "demo", 'SlotType = "Partitionable"\nState = "Unclaimed"\nTotalSlotGPUs = 4\nGPUs = 3'),
        ("slot1_1", "i-1", "demo", 'SlotType = "Dynamic"\nState = "Claimed"\nGPUs = 1'),
        ("slot1", "i-2", "other", 'SlotType = "Partitionable"\nState = "Unclaimed"\nTotalSlotGPUs = 1\nGPUs = 1'),
    ]
    with advertised(pool, run_area, slots):
        assert query_workers(pool, "demo") == {"i-1": Worker("i-1", 4, 3, 1)}
        assert query_workers(pool, 'x" || true || "') == {}
    drains = [(*one[:3], one[3] + '\nRegiondagDrain = "notice"') for one in slots[:2]]
    with advertised(pool, run_area, drains):
        assert query_workers(pool, "demo") == {"i-1": Worker("i-1", 4, 3, 1, draining=True)}
