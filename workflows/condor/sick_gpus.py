"""GPUs that workers take off by themselves since their self-test found them sick: which, and why, as their ads say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from regiondag.condor import client
from regiondag.condor.classads import ClassAd
from regiondag.pool.pool import Pool
from regiondag.util.text import bound

SICK_GPUS = "RegiondagSickGPUs"
NO_SICK_GPU = "none"
WHOLE_SLOTS = 'SlotType =!= "Dynamic"'  # not what was cut from others for jobs that run now
MOST_MACHINES = 20
SHOWN = 3  # machines


def query_sick_gpus(pool: Pool) -> dict[str, str]:
    """Ask the collector alone for machines with sick GPUs; PoolError where it does not answer."""
    constraint = f'{WHOLE_SLOTS} && ({SICK_GPUS} ?: "{NO_SICK_GPU}") =!= "{NO_SICK_GPU}"'
    return find_sick_gpus(client.query_some_slots(pool, constraint, ["Name", "Machine", SICK_GPUS]))


def find_sick_gpus(slots: Iterable[ClassAd]) -> dict[str, str]:
    """Return machines and what they say of the GPUs that they do not offer, bounded: a worker writes it."""
    said = {
        bound(str(ad.get("Machine", ad.get("Name", ""))), 60): bound(ad.get(SICK_GPUS, NO_SICK_GPU), 200)
        for ad in slots
    }
    return dict([(machine, text) for machine, text in said.items() if text != NO_SICK_GPU][:MOST_MACHINES])


def describe_sick_gpus(found: Mapping[str, str]) -> list[str]:
    """Return a sentence for each machine; of many, some.

    >>> describe_sick_gpus({"w2": "GPU-a0223334: XID 79, fell off the bus"})
    ['w2 does not offer GPU-a0223334: XID 79, fell off the bus']
    """
    said = [f"{machine} does not offer {why}" for machine, why in found.items()]
    more = len(said) - SHOWN
    return said if more <= 0 else [*said[:SHOWN], f"and {more} more machines: regiondag pool check has them"]
