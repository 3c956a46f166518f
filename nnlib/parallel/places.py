"""What each rank has of this machine: a GPU of those that the job may use, and its share of the threads. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from nnlib.shards.tree import RANKS
from nnlib.util.threads import BLAS_THREADS

VISIBLE, ASSIGNED = "CUDA_VISIBLE_DEVICES", "_CONDOR_AssignedGPUs"


def find_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that a process may use, as they are named to it: numbers, UUIDs, or their beginnings.

    They are those of CUDA_VISIBLE_DEVICES, else what HTCondor says that its job was given; none where neither says it.
    """
    named = environment.get(VISIBLE, environment.get(ASSIGNED, ""))
    found = []
    for name in (part.strip() for part in named.split(",")):
        if not name or name.startswith("-"):  # CUDA stops at the first that is none
            break
        found.append(name)
    return tuple(found)


def gpus_of(ranks: int, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return a GPU for each rank: the first ones that the environment names, else the machine's first."""
    found = find_gpus(environment) or tuple(map(str, range(ranks)))
    return found[:ranks]


def most_ranks(gpus: int) -> int:
    """Return how many ranks so many GPUs are enough for, one at least."""
    return max(ranks for ranks in RANKS if ranks <= max(gpus, 1))


def threads_of(ranks: int, threads: int) -> int:
    """Return how many of the job's threads a rank uses."""
    return max(1, threads // ranks)


def environment_of(rank: int, gpus: tuple[str, ...], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a rank: its own GPU, of as many as there are ranks, and BLAS on one thread.

    Without `gpus` it keeps what the job sees.
    """
    own = dict(environment) | dict.fromkeys(BLAS_THREADS, "1")
    if gpus:
        own[VISIBLE] = gpus[rank]
    return own
