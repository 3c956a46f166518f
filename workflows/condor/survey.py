"""What a pool offers: its machines, GPUs, transfer plugins, containers, as their ads say it; any pool, ours or not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from regiondag.condor import client
from regiondag.condor.access_point import AccessPoint, look_at_access_point
from regiondag.condor.classads import ClassAd, list_nested, number_of, quote_string
from regiondag.condor.sick_gpus import SICK_GPUS, WHOLE_SLOTS, find_sick_gpus
from regiondag.condor.versions import show_version
from regiondag.pool.pool import Pool
from regiondag.util.text import bound

CONTAINERS = ("HasContainer", "HasSIF", "HasSandboxImage", "HasDockerURL", "HasDocker", "HasSingularity")
PLUGINS = "HasFileTransferPluginMethods"
OF_SLOT = ["Name", "Machine", "SlotType", "CondorVersion", "OpSysAndVer", "Arch", "Cpus", "Memory", "Disk", "GPUs"]
OF_SLOT += ["TotalSlotCpus", "TotalSlotMemory", "TotalSlotDisk", "TotalSlotGPUs", "SimulatedGPUs", "HAS_GPU", PLUGINS]
OF_SLOT += CONTAINERS
OF_SLOT += [SICK_GPUS]
MOST_KINDS = 20  # whole ads that are asked for, to see what else machines say
MOST = 1 << 40  # that a machine may say it has of anything
NEEDED_PYTHON = (3, 11)
# What `python3` is where a system brings one.
_PYTHONS = {"Debian": {11: "3.9", 12: "3.11", 13: "3.13"}, "Ubuntu": {20: "3.8", 22: "3.10", 24: "3.12"}}
_PYTHONS |= {name: {7: "3.6", 8: "3.6", 9: "3.9", 10: "3.12"} for name in ("RedHat", "CentOS", "AlmaLinux", "Rocky")}


@dataclass(frozen=True, slots=True)
class SystemKind:
    """Machines with the same operating system and processor."""

    name: str  # such as Debian13 X86_64
    machines: int
    python: str  # version of the system's own python3; empty: not known


@dataclass(frozen=True, slots=True)
class GpuKind:
    """GPUs that say the same of themselves."""

    name: str
    gpus: int
    machines: int
    capability: str  # compute capability, such as 8.0; empty: not said
    memory_mb: int  # of each; 0: not said
    cuda: str  # newest CUDA that the driver runs; empty: not said
    simulated: bool  # made up by HTCondor, for tests


@dataclass(frozen=True, slots=True)
class Survey:
    """What a pool offers. Machines are counted, not slots, and each with all that it has when nothing runs there."""

    pool: str
    access_point: str  # HTCondor's version here
    collector: str  # ... of the central manager; empty: not said
    startds: dict[str, int]  # ... of machines -> how many
    machines: int
    slots: int
    partitionable: int  # slots that are divided as jobs ask
    cpus: int  # of all together
    memory_mb: int  # of all together
    largest_cpus: int  # of the slot that has most
    largest_memory_mb: int
    largest_disk_mb: int
    has_gpu: int  # machines that say HAS_GPU, as regiondag's own workers do
    systems: tuple[SystemKind, ...]
    gpus: tuple[GpuKind, ...]
    plugins: dict[str, int]  # kind of URL that jobs can get files from -> machines
    containers: dict[str, int]  # what machines say of containers -> how many
    without_sif: int  # machines of Debian's HTCondor with containers, on which HTCondor itself starts no .sif
    sick_gpus: dict[str, str]  # machines -> their GPUs that are not offered, and why, as regiondag's own workers say
    pythons: dict[str, str]  # attributes of machines with Python in their names -> values, of one machine of each kind


def look_at_pool(pool: Pool) -> tuple[Survey, AccessPoint]:
    """Ask a pool's collector, access point, and one worker; PoolError where the collector does not answer."""
    slots = client.query_some_slots(pool, WHOLE_SLOTS, OF_SLOT)
    with_gpus = client.query_some_slots(pool, f"{WHOLE_SLOTS} && TotalSlotGPUs > 0", [])
    samples = client.query_some_slots(pool, f"{WHOLE_SLOTS} && ({_one_of_each_kind(slots)})", []) if slots else []
    collectors = [version_of(ad) for ad in client.query_daemons(pool, "Collector", ["CondorVersion"])]
    worker = next((str(ad.get("Machine", "")) for ad in slots), "")
    told = worker if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,253}", worker) else ""
    return survey(pool, collectors, slots, with_gpus, samples), look_at_access_point(pool, told)


def survey(
    pool: Pool,
    collectors: Sequence[str],
    slots: Sequence[ClassAd],
    with_gpus: Sequence[ClassAd],
    samples: Sequence[ClassAd],
) -> Survey:
    """Count what slots say; `with_gpus` and `samples` are whole ads, of those with GPUs and of one of each kind."""
    containers = {name: _machines(ad for ad in slots if _says(ad, name)) for name in CONTAINERS}
    methods = Counter(method for ad in _one_a_machine(slots) for method in {*_methods(ad)})
    sifless = (ad for ad in slots if _is_debians(ad) and any(_says(ad, n) for n in CONTAINERS[:1] + CONTAINERS[2:]))
    return Survey(
        pool=pool.name,
        access_point=show_version(pool.version),
        collector=next(iter(collectors), ""),
        startds=dict(Counter(map(version_of, _one_a_machine(slots))).most_common(MOST_KINDS)),
        machines=_machines(slots),
        slots=len(slots),
        partitionable=sum(ad.get("SlotType") == "Partitionable" for ad in slots),
        cpus=sum(_amount(ad, "Cpus") for ad in slots),
        memory_mb=sum(_amount(ad, "Memory") for ad in slots),
        largest_cpus=max((_amount(ad, "Cpus") for ad in slots), default=0),
        largest_memory_mb=max((_amount(ad, "Memory") for ad in slots), default=0),
        largest_disk_mb=max((_amount(ad, "Disk") for ad in slots), default=0) >> 10,
        has_gpu=_machines(ad for ad in slots if _says(ad, "HAS_GPU")),
        systems=_systems(slots),
        gpus=_gpus(with_gpus),
        plugins=dict(methods.most_common(MOST_KINDS)),
        containers={name: count for name, count in containers.items() if count},
        without_sif=_machines(ad for ad in sifless if not _says(ad, "HasSIF")),
        sick_gpus=find_sick_gpus(slots),
        pythons=_pythons(samples),
    )


def version_of(ad: ClassAd) -> str:
    """Return HTCondor's version that a daemon says it is."""
    said = str(ad.get("CondorVersion", ""))
    found = re.match(r"\$CondorVersion: ([0-9]+(?:\.[0-9]+)+) ", said)
    return bound(found[1] if found else said or "?", 20)


def python_of(system: str) -> str:
    """Return the version of the `python3` that a system brings; empty where that is not known.

    >>> python_of("AlmaLinux9"), python_of("Solaris11")
    ('3.9', '')
    """
    found = re.fullmatch(r"([A-Za-z]+)([0-9]{1,3})", system)
    return _PYTHONS.get(found[1], {}).get(int(found[2]), "") if found else ""


def _systems(slots: Sequence[ClassAd]) -> tuple[SystemKind, ...]:
    counted = Counter((_word(ad, "OpSysAndVer"), _word(ad, "Arch")) for ad in _one_a_machine(slots))
    return tuple(
        SystemKind(f"{system} {arch}", machines, python_of(system))
        for (system, arch), machines in counted.most_common(MOST_KINDS)
    )


def _gpus(slots: Sequence[ClassAd]) -> tuple[GpuKind, ...]:
    found: Counter[tuple[str, str, int, str, bool]] = Counter()
    machines: dict[tuple[str, str, int, str, bool], set[str]] = {}
    for ad in slots:
        simulated, nested = _says(ad, "SimulatedGPUs"), list_nested(ad, "AvailableGPUs")
        for gpu in nested or [ad] * max(1, min(_amount(ad, "GPUs"), 64)):
            kind = (*_gpu_facts(gpu, "" if nested else "GPUs_"), simulated)
            found[kind] += 1
            machines.setdefault(kind, set()).add(_machine(ad))
    return tuple(
        GpuKind(name, count, len(machines[kind]), capability, memory, cuda, simulated)
        for kind, count in found.most_common(MOST_KINDS)
        for name, capability, memory, cuda, simulated in [kind]
    )


def _gpu_facts(gpu: ClassAd, before: str) -> tuple[str, str, int, str]:
    cuda = _amount(gpu, f"{before}MaxSupportedVersion")  # 12040 is 12.4
    capability = gpu.get(f"{before}Capability")
    return (
        _word(gpu, f"{before}DeviceName"),
        f"{capability:.1f}" if type(capability) in (int, float) else "",
        _amount(gpu, f"{before}GlobalMemoryMb"),
        f"{cuda // 1000}.{cuda % 1000 // 10}" if 0 < cuda < 10**6 else "",
    )


def _pythons(samples: Sequence[ClassAd]) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for ad in samples:
        for name in ad:
            if "python" in name.lower() and len(found) < MOST_KINDS:
                found.setdefault(bound(name), {})[bound(ad.eval(name))] = None
    return {name: ", ".join(list(values)[:4]) for name, values in found.items()}


def _one_of_each_kind(slots: Sequence[ClassAd]) -> str:
    """Return a constraint that finds one slot of each system and version of HTCondor."""
    kinds = {(str(ad.get("OpSysAndVer")), version_of(ad)): str(ad.get("Name", "")) for ad in slots}
    names = [name for name in kinds.values() if name.isprintable() and len(name) < 256]
    return " || ".join(["false", *(f"Name == {quote_string(name)}" for name in names[:MOST_KINDS])])


def _one_a_machine(slots: Iterable[ClassAd]) -> list[ClassAd]:
    return list({_machine(ad): ad for ad in slots}.values())


def _machine(ad: ClassAd) -> str:
    return str(ad.get("Machine", ad.get("Name", "")))


def _machines(slots: Iterable[ClassAd]) -> int:
    return len({_machine(ad) for ad in slots})


def _says(ad: ClassAd, name: str) -> bool:
    return name in ad and ad.eval(name) is True


def _amount(ad: ClassAd, name: str) -> int:
    return min(max(number_of(ad, name), 0), MOST)


def _word(ad: ClassAd, name: str) -> str:
    return bound(ad.get(name, "?"), 40)


def _methods(ad: ClassAd) -> list[str]:
    return [bound(method.strip(), 20) for method in str(ad.get(PLUGINS, "")).split(",") if method.strip()][:MOST_KINDS]


def _is_debians(ad: ClassAd) -> bool:
    """Whether HTCondor is Debian's package, which lacks the image by which HasSIF is found out."""
    return "+dfsg" in str(ad.get("CondorVersion", ""))
