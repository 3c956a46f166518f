"""Would this run work on this pool? Dry-run the submit files, read the DAGs with DAGMan, match every kind of job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regiondag.condor import classads, client, matching
from regiondag.condor.environments import check_environments
from regiondag.condor.graph_size import check_memory
from regiondag.condor.url_transfer import find_bad_keys, name_lacking
from regiondag.condor.versions import show_version
from regiondag.pool.pool import Pool
from regiondag.run.layout import FINAL_SUBMIT, NETWORK_FILE, TRAIN_SUBMIT, RunFolder
from regiondag.study.job_rules import HAS_APPTAINER
from regiondag.study.submit_commands import why_reserved
from regiondag.util.text import list_some, spell_out

IO_PROXY = (
    "caution: WantIOProxy is set, so a job can read and write your files on this machine and any attribute of its ad; "
    "nothing here needs it: take it out of the submit file, or of SUBMIT_ATTRS in HTCondor's configuration"
)

# The graph's own commands in which regions differ by their names alone; others, of the study, may decide what matches.
_NAMES = re.compile(
    r"^(batch_name|initialdir|MY\.(Regiondag\w+|CommonInputCatalogs|_x_catalog_\w+)) = .*$", re.MULTILINE
)
_INPUTS = re.compile(r"^transfer_input_files = .*$", re.MULTILINE)
_URL = re.compile(r"(?<=,)([a-z][a-z0-9+.-]*://)[^,\n]*")
_UNUSED = re.compile(r"the line '(.*)' was unused by condor_submit")

SHOWN = 3  # names or reasons in one line
UNKNOWN_LINK = "what links their GPUs is not known to HTCondor: run nnlib doctor-gpu on a worker"
CORRECT = "correct the name in job.submit, or take it out"
INSTALL_APPTAINER = (
    "trainer.container needs Apptainer on workers, which HTCondor finds as /usr/bin/singularity, or by "
    "SINGULARITY = /usr/bin/apptainer in their configuration; then: condor_restart -startd"
)
ONE_KIND = "GPUs_DeviceName"  # what only machines say whose GPUs are all of one kind


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was checked, whether it is good, and what was seen."""

    subject: str
    good: bool
    text: str


def check_run(pool: Pool, run: RunFolder, slugs: Sequence[str]) -> Iterator[Finding]:
    """Yield the findings of all checks, the quick ones first."""
    yield from check_dag(pool, run)
    slots = client.query_slots(pool)
    yield _describe_slots(pool, slots)
    for subject, good, text in check_environments(pool, run, slugs, slots):
        yield Finding(subject, good, text)
    for submit, regions in distinct_submit_files(run, slugs).items():
        subject = f"{submit.name} of {list_some(regions, 3)}"
        ad, problem = dry_run(pool, submit)
        if problem:
            yield Finding(subject, False, problem)
        if ad is not None:
            yield from (Finding(subject, False, text) for text in find_bad_keys(ad))
            yield describe_match(subject, matching.match(ad, slots), classads.number_of(ad, "RequestGPUs"), slots)
            if "WantIOProxy" in ad and ad.eval("WantIOProxy") is True:
                yield Finding(subject, True, IO_PROXY)


def check_dag(pool: Pool, run: RunFolder) -> Iterator[Finding]:
    """Say what memory the graph takes, and let DAGMan's own parser read it where the pool has that (from 24.10 on)."""
    yield Finding(f"memory for {run.study_dag.name}", *check_memory(run))
    done = pool.run(["sh", "-c", "command -v condor_dag_checker"], cwd=run.path, capture_output=True)
    if done.returncode != 0:
        yield Finding(
            run.study_dag.name, True, f"not parsed: HTCondor {show_version(pool.version)} has no condor_dag_checker"
        )
        return
    done = pool.run(["condor_dag_checker", str(run.study_dag)], cwd=run.path, capture_output=True)
    text = (done.stdout + done.stderr).strip().splitlines()
    yield Finding(run.study_dag.name, done.returncode == 0, text[-1] if text else "condor_dag_checker says nothing")


def distinct_submit_files(run: RunFolder, slugs: Sequence[str]) -> dict[Path, list[str]]:
    """Return one submit file of each kind, with the regions whose files differ from it in names only."""
    groups: dict[tuple[str, str], tuple[Path, list[str]]] = {}
    for slug in slugs:
        for name in (TRAIN_SUBMIT, FINAL_SUBMIT):
            path = run.region(slug).path / name
            if not path.exists():
                continue  # a region without a search of its own has no trials
            text = without_names(path.read_text(encoding="utf-8"), slug)
            groups.setdefault((name, text), (path, []))[1].append(slug)
    return dict(groups.values())


def without_names(submit: str, slug: str) -> str:
    """Return a submit file without what is of its region alone and decides no match; of URLs their kinds decide."""
    alike = _NAMES.sub("", submit.replace(f"/regions/{slug}/", "/regions/*/"))
    return _INPUTS.sub(lambda line: _URL.sub(r"\1", line[0]), alike)


def dry_run(pool: Pool, submit: Path) -> tuple[classads.ClassAd | None, str]:
    """Have condor_submit make the job's ad without submitting; the ad, and what is wrong: all where there is none."""
    # trials/ is empty before the run, and VARS come from DAGMan: give both for one job
    urls = find_urls(submit.read_text(encoding="utf-8"))
    files = ",".join([str(submit.parent / NETWORK_FILE), *urls])
    given = ["trial=0000", f"initialdir={submit.parent}", f"transfer_input_files={files}"]
    return _dry_run(pool, given, str(submit), submit.parent)


def dry_run_text(pool: Pool, text: str) -> tuple[classads.ClassAd | None, str]:
    """Do the same with a submit file that is written nowhere, nor what it names."""
    given = ["trial=0000", "initialdir=/", "executable=/bin/sh", f"transfer_input_files={','.join(find_urls(text))}"]
    return _dry_run(pool, given, "-", Path("/"), text)


def find_urls(submit: str) -> list[str]:
    """Return the URLs among the files that a submit file of ours names as a job's inputs."""
    line = _INPUTS.search(submit)
    return [url[0] for url in _URL.finditer(line[0])] if line else []


def _dry_run(
    pool: Pool, given: Sequence[str], submit: str, folder: Path, text: str = ""
) -> tuple[classads.ClassAd | None, str]:
    appended = [word for line in given for word in ("-append", line)]
    command = ["condor_submit", "-dry-run", "-", *appended, submit]
    done = pool.run(command, cwd=folder, capture_output=True, input=text)
    ad = classads.parse_ad(done.stdout) if done.returncode == 0 else None
    if ad is not None:
        named = (line.partition(" =")[0] for line in _UNUSED.findall(done.stderr))
        unused = [name for name in named if not why_reserved(name)]  # those may be for another version of HTCondor
        return ad, f"HTCondor {show_version(pool.version)} knows no {', '.join(unused)}: {CORRECT}" if unused else ""
    said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return None, " ".join(said[-3:]) or f"condor_submit -dry-run ended with {done.returncode}"


def _describe_slots(pool: Pool, slots: Sequence[classads.ClassAd]) -> Finding:
    with_gpu = sum(map(matching.offers_gpus, slots))
    note = " (simulated)" if pool.simulated_gpus else ""
    text = f"{len(slots)} slots, {with_gpu} of them with GPUs{note}"
    most = matching.most_gpus(slots)
    if most is not None:
        text += f", at most {most.count} on one machine ({most.name or 'of several kinds'})"
    return Finding(f"pool {pool.name}", bool(slots), text)


def describe_match(subject: str, match: matching.Match, gpus: int, slots: Sequence[classads.ClassAd]) -> Finding:
    """Say what a job finds that asks for so many GPUs, or makes do with them."""
    if match.matching:
        text = f"matches {len(match.matching)} of {match.slots} slots{spell_out(_describe_others(match))}"
        return Finding(subject, True, text + f"; {UNKNOWN_LINK}" * (gpus > 1))
    most = matching.most_gpus(slots)
    text = find_mismatch(match)
    if most is not None and gpus > most.count:
        text += f"; it needs {gpus} GPUs, the most on one machine are {most.count}: give job.gpus fewer, or min and max"
    return Finding(subject, False, text)


def _describe_others(match: matching.Match) -> str:
    """Name the slots that match where not all do, and say what keeps the job from the others."""
    if len(match.matching) == match.slots:
        return ""
    text = f": {list_some(match.matching, SHOWN)}"
    for group in match.excluded[:SHOWN]:
        they = "it does" if len(group.slots) == 1 else "they do"
        text += f"; not {list_some(group.slots, SHOWN)}: {they} not meet {list_some(group.unmet, SHOWN)}"
    more = sum(len(group.slots) for group in match.excluded[SHOWN:])
    text += f"; nor {more} more, for other reasons" if more else ""
    if match.refused_by_slot:
        text += f"; not {list_some(match.refused_by_slot, SHOWN)}: the START expression there refuses the job"
    return text


def _describe_clause(clause: matching.Clause) -> str:
    return f"{clause.text}: {'; '.join(clause.lacking[:SHOWN])}" if clause.lacking else clause.text


def find_mismatch(match: matching.Match) -> str:
    """Say why a job that matches no slot does not."""
    never = [clause for clause in match.clauses if clause.met_by == 0]
    if never:
        text = "; ".join(f"no slot meets {spell_out(_describe_clause(clause))}" for clause in never)
        text += f"; {INSTALL_APPTAINER}" * any(HAS_APPTAINER in clause.text for clause in never)
        text += name_lacking(clause.text for clause in never)
        mixed = any(ONE_KIND in clause.text for clause in never)
        return text + "; GPUs of several kinds: name one with job.require_gpus: DeviceName == ..." * mixed
    if match.refused_by_slot:
        return f"the START expression of {list_some(match.refused_by_slot, 3)} refuses the job"
    clauses = "; ".join(f"{clause.text} (met by {clause.met_by})" for clause in match.clauses)
    return f"no single slot meets all clauses at once: {clauses}"
