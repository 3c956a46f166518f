"""How jobs end that do not end by themselves: the rules in their submit files, and what those say."""

from __future__ import annotations

from regiondag.study.model import JobRequest

NOBODY = "no machine took the job"  # how the reason begins of a job that never ran: nothing is known of its trial

# Holds that may pass by themselves: a file or a process that could not be made, a transfer that failed
# (HTCondor's codes of JobHoldReason 6 to 14, 18, 19 and 36).
PASSING = (6, 7, 8, 9, 10, 11, 12, 13, 14, 18, 19, 36)
MOST_RELEASES = 3
LEASE = 600  # seconds without a word until a machine is given up
RELEASE_AFTER = 60  # seconds, times the number of the hold
TOO_MUCH_OUTPUT = 33  # hold code of a job that would bring back more than it may: it always would
BY_THE_USER = 1  # hold code of condor_hold: whoever holds a job releases it
HAS_APPTAINER = "HasSingularity"  # what HTCondor says of a machine on which it has found Apptainer or Singularity
# glibc's minor version of systems by their names and versions, as slots say those (OpSysAndVer).
GLIBC = {"Debian10": 28, "Debian11": 31, "Debian12": 36, "Debian13": 41, "Ubuntu18": 27, "Ubuntu20": 31, "Ubuntu22": 35}
GLIBC |= {"Ubuntu24": 39, "Fedora40": 39, "Fedora41": 40, "Fedora42": 41, "openSUSE15": 38, "AmazonLinux2": 26}
GLIBC |= {"AmazonLinux2023": 34}
_LIKE_RED_HAT = ("RedHat", "CentOS", "AlmaLinux", "Rocky", "SL")
GLIBC |= {f"{name}{major}": minor for name in _LIKE_RED_HAT for major, minor in {7: 17, 8: 28, 9: 34, 10: 39}.items()}
OUT_OF_MEMORY = "out of memory"  # how the worker's reason begins when Python found no more memory


def memory_steps(job: JobRequest, first: int) -> list[int]:
    """Return the requests after `first` bytes: doubled each time, up to `memory_max`."""
    steps = []
    while job.memory_max is not None and first < job.memory_max:
        first = min(2 * first, job.memory_max)
        steps.append(first)
    return steps


def gpus_after(job: JobRequest, times: int) -> int:
    """Return how many GPUs a job asks for whose earlier tries failed by a machine's fault so many times."""
    return (job.gpu_counts or (0,))[: times + 1][-1]


def memory_after(job: JobRequest, times: int) -> int:
    """Return what a job asks for whose earlier tries ran out of memory so many times, in bytes."""
    return [job.memory, *memory_steps(job, job.memory)][: times + 1][-1]


def requires_glibc(least: tuple[int, int]) -> str:
    """Return what keeps jobs off systems that are known to have an older glibc, as an expression of HTCondor's.

    >>> requires_glibc((2, 27))
    '!stringListMember(TARGET.OpSysAndVer ?: "", "AmazonLinux2,AlmaLinux7,CentOS7,RedHat7,Rocky7,SL7")'
    """
    older = [name for name, minor in GLIBC.items() if (2, minor) < least]
    return f'!stringListMember(TARGET.OpSysAndVer ?: "", "{",".join(older)}")'
