"""What `regiondag fleet` asks a real HTCondor: idle jobs that want GPUs, and the slots of a fleet's workers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from workflows.condor import query_gpu_requests, query_workers
from workflows.fleet.demand import Request, Worker
from workflows.pool import Pool

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


def test_idle_jobs_that_want_gpus(pool, run_area):
    for name, gpus, count in (("none", "", 3), ("one", "request_gpus = 1", 2), ("four", "request_gpus = 4", 1)):
        (run_area / f"{name}.sub").write_text(SUBMIT.format(gpus=gpus, count=count))
        shell(pool, f"condor_submit -batch-name fleet-test {name}.sub", run_area)
    try:
        found = sorted(query_gpu_requests(pool), key=lambda request: request.gpus)
        assert found == [Request(1, 2, 3072)] * 2 + [Request(4, 2, 3072)]
        shell(pool, "condor_hold -constraint 'RequestGPUs =?= 4'", run_area)
        assert query_gpu_requests(pool) == [Request(1, 2, 3072)] * 2
    finally:
        shell(pool, "condor_rm -constraint 'JobBatchName =?= \"fleet-test\"'", run_area)


def test_slots_of_a_fleets_workers(pool, run_area):
    slots = [
        ("slot1", "i-1", "demo", 'SlotType = "Partitionable"\nState = "Unclaimed"\nTotalSlotGPUs = 4\nGPUs = 3'),
        ("slot1_1", "i-1", "demo", 'SlotType = "Dynamic"\nState = "Claimed"\nGPUs = 1'),
        ("slot1", "i-2", "other", 'SlotType = "Partitionable"\nState = "Unclaimed"\nTotalSlotGPUs = 1\nGPUs = 1'),
    ]
    for number, (name, instance, fleet, more) in enumerate(slots):
        (run_area / f"{number}.ad").write_text(SLOT.format(name=name, instance=instance, fleet=fleet, more=more))
        shell(pool, f"condor_advertise -tcp UPDATE_STARTD_AD {number}.ad", run_area)
    try:
        end = time.monotonic() + 30
        while len(query_workers(pool, "demo")) < 1 and time.monotonic() < end:
            time.sleep(0.2)
        assert query_workers(pool, "demo") == {"i-1": Worker("i-1", 4, 3, 1)}
        assert query_workers(pool, 'x" || true || "') == {}
    finally:
        for number, (name, instance, *_) in enumerate(slots):
            query = f'MyType = "Query"\nTargetType = "Machine"\nRequirements = Name == "{name}@{instance}"\n'
            (run_area / f"{number}.query").write_text(query)
            shell(pool, f"condor_advertise -tcp INVALIDATE_STARTD_ADS {number}.query", run_area)
