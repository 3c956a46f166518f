"""What a pool offers, what a study's jobs need that it lacks, and what to write into study.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from regiondag.condor import classads, client, matching, preflight
from regiondag.condor.access_point import JOBS_PER_OWNER, AccessPoint, find_refusal
from regiondag.condor.classads import ClassAd, number_of
from regiondag.condor.survey import NEEDED_PYTHON, Survey, look_at_pool
from regiondag.condor.survey_text import is_old, sum_of
from regiondag.condor.url_transfer import find_bad_keys
from regiondag.pool.machine import Finding
from regiondag.pool.pool import Pool
from regiondag.run.layout import BUNDLE_FILE
from regiondag.util.text import list_some

HAS_GPU = "HAS_GPU"


@dataclass(frozen=True, slots=True)
class PoolCheck:
    """What a pool offers and asks, and how a study stands in it."""

    survey: Survey
    access: AccessPoint
    findings: tuple[Finding, ...]  # of the study's jobs; none without a study

    @property
    def good(self) -> bool:
        """Whether the study's jobs would run."""
        return all(finding.state != "BAD" for finding in self.findings)


def check_pool(pool: Pool, texts: Mapping[str, str], at_once: int) -> PoolCheck:
    """Ask a pool, and look at the submit files `texts` in it, as `check_jobs` does."""
    found, access = look_at_pool(pool)
    return PoolCheck(found, access, tuple(check_jobs(pool, found, access, texts, at_once)) if texts else ())


def check_jobs(
    pool: Pool, found: Survey, access: AccessPoint, texts: Mapping[str, str], at_once: int
) -> Iterator[Finding]:
    """Yield how each kind of job stands in the pool; `texts` are submit files by what people call them.

    `at_once` is how many jobs the study may have in the queue.
    """
    slots = client.query_slots(pool)
    schedds = client.query_daemons(pool, "Schedd", []) if access.rules else []
    schedd = schedds[0] if len(schedds) == 1 else classads.parse_ad("Requirements = true\n")  # else which is ours?
    for subject, text in texts.items():
        ad, problem = preflight.dry_run_text(pool, text)
        if problem:
            yield Finding(subject, "BAD", problem)
        if ad is None:
            continue
        yield from (Finding(subject, "BAD", text) for text in find_bad_keys(ad))
        seen = preflight.describe_match(subject, matching.match(ad, slots), number_of(ad, "RequestGPUs"), slots)
        advice = [] if seen.good else list(advise(ad, found))
        yield Finding(subject, "ok" if seen.good else "BAD", "; ".join([seen.text, *advice]))
        for rule in access.rules:
            refusal = find_refusal(rule, schedd, ad)
            if refusal:
                text = f"the access point {'warns of' if rule.warns else 'would refuse'} it ({rule.name}): {refusal}"
                yield Finding(subject, "note" if rule.warns else "BAD", f"{text}; job.submit adds what is missing")
    own_python = any(BUNDLE_FILE not in text for text in texts.values())
    yield from _check_pool(found, access, at_once, own_python=own_python)


def advise(job: ClassAd, found: Survey) -> Iterator[str]:
    """Yield what to write for a job that matches no slot."""
    gpus = number_of(job, "RequestGPUs")
    if gpus and not found.gpus:
        yield "no machine has a GPU: write job: {gpus: 0}, or ask for machines that have some"
    elif HAS_GPU in str(job.lookup("Requirements")) and found.gpus and not found.has_gpu:
        yield f'only regiondag\'s own workers say {HAS_GPU} of themselves: write job: {{requirements: "true"}}'
    for asked, most, key, unit in (
        (number_of(job, "RequestCpus"), found.largest_cpus, "cpus", ""),
        (number_of(job, "RequestMemory"), found.largest_memory_mb, "memory", "MB"),
        (number_of(job, "RequestDisk") >> 10, found.largest_disk_mb, "disk", "MB"),
    ):
        if 0 < most < asked:
            yield f"it asks for {asked}{unit}, the largest slot has {most}{unit}: write job: {{{key}: {most}{unit}}}"


def _check_pool(found: Survey, access: AccessPoint, at_once: int, *, own_python: bool) -> Iterator[Finding]:
    old = [kind for kind in found.systems if is_old(kind)]
    if old and own_python:
        needed = ".".join(map(str, NEEDED_PYTHON))
        names: Sequence[str] = [kind.name.split(" ")[0] for kind in old]
        clauses = " && ".join(f'TARGET.OpSysAndVer =!= "{name}"' for name in dict.fromkeys(names) if name.isalnum())
        yield Finding(
            "Python",
            "note",
            f"the python3 that {list_some(names)} brings ({sum_of(old)} of {found.machines} machines) is older than "
            f"{needed}, which jobs need; where no other one is installed, send one, job: {{python: bundle}}, or keep "
            f"them away: job: {{requirements: '{clauses}'}}",
        )
    most = access.limits.get(JOBS_PER_OWNER, "")
    if most.isdecimal() and int(most) < at_once:
        text = f"{at_once:,} jobs may wait at once, {JOBS_PER_OWNER} = {most}: write limits: {{jobs: {int(most) - 1}}}"
        yield Finding("limits", "BAD", text)
