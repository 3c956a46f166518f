"""What was done to real studies and what came of it, from the results of the fault campaigns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from docs._generate.markdown import escape, table

CAMPAIGNS = {
    "faults": "On one machine",
    "faults_earlier": "Before that, of fewer kinds, eight in a study, one at a time, on HTCondor 23.9 alone",
    "faults_network": "Between machines",
}
SERIES = {"trixie": "23.9", "forky": "25.14"}

# What happens, and the kinds of which it is true.
GROUPS: Sequence[tuple[str, Sequence[str], str]] = (
    (
        "A daemon of HTCondor's",
        ("schedd killed", "schedd restarted", "negotiator killed", "collector killed", "shared port killed",
         "pool reconfigured", "manager frozen"),
        "HTCondor starts it again. Jobs train on meanwhile, on a lease, and are found again; DAGMan reads its own log.",
    ),
    (
        "A worker",
        ("startd killed", "starter killed", "shadow killed", "procd killed", "worker killed", "worker restarted",
         "worker vacated", "worker frozen", "worker's connections cut"),
        "The job goes on where it is, or elsewhere from its last checkpoint, to the same bits. A machine that is gone "
        "is given up when the job's lease has run out.",
    ),
    (
        "The network",
        ("worker cut off", "worker cut off past its lease", "manager cut off", "machine lost"),
        "The same: shorter than the lease the job is found again, longer it begins elsewhere from its checkpoint, and "
        "what the first one still brings is not taken.",
    ),
    (
        "A training",
        ("trainer killed", "training asked to stop", "training frozen", "training without memory", "evicted",
         "training killed by its cgroup", "evicted fast", "job held", "GPU lost", "Python missing"),
        "It counts as the machine's fault: the node is tried again, elsewhere where there is another machine, from the "
        "checkpoint. No trial fails for it while retries are left (`job.retries`).",
    ),
    (
        "PRE and POST",
        ("PRE killed", "POST killed", "PRE killed in mid-write", "POST killed in mid-write", "PRE killed at a flush",
         "POST killed at a flush", "script frozen", "script without memory", "script killed by its cgroup",
         "script without open files"),
        "DAGMan runs it again. It cuts off what is torn, finds what is settled, and says nothing twice; the same "
        "journal gives the same proposal.",
    ),
    (
        "DAGMan",
        ("dagman killed", "DAGMan frozen", "DAG held", "DAG removed", "node log deleted", "node log cut",
         "submitted twice"),
        "It starts again from its log or from a rescue file; what the journals have as done is passed over, also where "
        "the log has lost it. One whose log was cut ends where what it reads makes no sense: submit it again. A second "
        "one beside the first is refused.",
    ),
    (
        "Names and tokens",
        ("manager's name unknown", "worker's resolver silent", "manager's resolver silent", "token expired",
         "key replaced"),
        "Jobs train on. Whoever must find the manager anew asks again and again, and is back once the name resolves, "
        "or a token that holds lies in its place.",
    ),
    (
        "Power",
        ("power cut in PRE", "power cut in POST", "machine rebooted", "pool stopped"),
        "Once the pool is started again, DAGMan's job goes on by itself. What was flushed is there, what was not is "
        "done again.",
    ),
    (
        "Disks",
        ("worker's disk full", "manager's disk full", "quota reached", "run directory read-only", "result unreadable",
         "disk with errors", "slow disk"),
        "Whoever could write no more ends with the machine's fault and is tried again; no half file takes the place of "
        "a whole one.",
    ),
    (
        "Wrong bytes",
        ("result truncated", "model truncated", "checkpoint truncated", "checkpoint corrupted", "input corrupted",
         "input corrupted in transit"),
        "SHA-256 digests of inputs and models tell: the training is done again. A checkpoint that is not whole is "
        "left, and the training begins anew.",
    ),
    (
        "Clocks, versions, backups",
        ("clock jumped", "manager upgraded", "folder restored"),
        "A run goes by its own code and by its journals, which no clock decides.",
    ),
)  # fmt: skip

Results = Mapping[str, Mapping[str, Any]]


def render_survival(results: Results) -> str:
    """Return what happens in each group of kinds, with how many faults there were of each."""
    counts = Counter[str]()
    for name in CAMPAIGNS:
        counts.update({kind["kind"]: kind["injected"] for kind in results[name]["kinds"]})
    rows = []
    for what, kinds, happens in GROUPS:
        listed = ", ".join(f"{kind} ({counts[kind]})" for kind in kinds if counts.get(kind))
        if listed:
            rows.append((what, escape(listed), escape(happens)))
    return f"{table(('what fails', 'kinds, and how many faults', 'what happens'), rows)}\n\n{_summary(results)}"


def _summary(results: Results) -> str:
    """Return the figures of all campaigns in sentences, each from its rows."""
    lines = []
    for name, what in CAMPAIGNS.items():
        found = results[name]
        kinds = sum(bool(kind["injected"]) for kind in found["kinds"])
        lines.append(
            f"{what} ({found['date']}): {_row(found, 'faults injected')} faults of {kinds} kinds in "
            f"{_row(found, 'studies that ended by') + _row(found, 'studies that ended once')} studies"
            f"{_pairs(found)}; {_row(found, 'studies that did not end')} did not end, "
            f"{_row(found, 'studies that ended once')} had to be submitted again. "
            f"Trials lost: {_row(found, 'trials and final trainings lost')}, counted twice: "
            f"{_row(found, 'trials and final trainings counted')}; torn lines: {_row(found, 'torn lines')}; other "
            f"champions: {_row(found, 'champions other')}; studies with something else wrong: "
            f"{_row(found, 'studies with something')}."
        )
    lines += [f"Set aside: {text}." for name in CAMPAIGNS for text in results[name].get("set_aside", ())]
    return "\n".join(f"- {line}" for line in lines)


def _pairs(found: Mapping[str, Any]) -> str:
    """Return how many cases were of two faults at once, and which HTCondor ran how many studies, where that is kept."""
    texts = [row["workload"] for row in found["rows"]]
    if "cases of two faults at once" not in texts:
        return ""
    series = ", ".join(f"{row['ours']} {row['workload']}" for row in found["rows"] if " on HTCondor" in row["workload"])
    return f" ({series}), in {_row(found, 'cases of two')} of {_row(found, 'cases of one')} cases two at once"


def _row(found: Mapping[str, Any], begins: str) -> int:
    return sum(int(row["ours"]) for row in found["rows"] if row["workload"].startswith(begins))


def render_slowest(results: Results) -> str:
    """Return the longest standstills of the campaign on one machine."""
    rows = (
        (f"{one['seconds']:.0f} s", escape(one["kind"]), SERIES.get(one["suite"], one["suite"]), escape(one["why"]))
        for one in results["faults"].get("slowest", ())
    )
    return table(("time", "fault", "HTCondor", "what took longest"), rows)


def render_faults(results: Results) -> str:
    """Return a line for each kind: what is done, how many studies it hit and how they ended."""
    heads = (
        "kind",
        "what is done",
        "faults",
        "studies",
        "ended",
        "submitted again",
        "lost",
        "twice",
        "other champions",
    )
    rows = []
    for name in CAMPAIGNS:
        for kind in results[name]["kinds"] if name != "faults_earlier" else ():
            numbers = ("injected", "studies", "by_itself", "resubmitted", "lost", "doubled", "other_champions")
            rows.append(
                (escape(kind["kind"]), escape(kind.get("what", "")), *(str(kind[number]) for number in numbers))
            )
    return table(heads, rows)
