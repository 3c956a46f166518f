"""Which of HTCondor's submit commands a study may add to its jobs: all but those by which its graph works."""

from __future__ import annotations

import re
from collections.abc import Mapping

from regiondag.study.space import Value

EXPRESSION = "expression"  # the one key of a value that is a ClassAd expression
NAME = r"(\+|[Mm][Yy]\.)?[A-Za-z_][A-Za-z0-9_]*"
ATTRIBUTE = "MY."  # what names of attributes of the job's ad begin with; `+` is short for it

# Canonical name -> a text, a number, true or false, or {EXPRESSION: ...}.
Submit = Mapping[str, Value | Mapping[str, str]]

# What would change the graph, and what to do instead: patterns of names in lower case and without `_`, so that a
# command and the attribute that it makes are one: request_cpus is RequestCpus.
_RESERVED = {
    "job.cpus says how many": r"(retry)?requestcpus?",
    "job.memory and job.memory_max say how much": r"(retry)?requestmemory memoryusage imagesize residentsetsize\w*",
    "job.disk says how much": r"(retry)?requestdisk diskusage",
    "job.max_output says how much a job may bring back": r"maxtransferoutputmb",
    "job.gpus and job.require_gpus say how many and which": (
        r"((retry)?request|require)gpus? gpus(min|max)\w* cudaversion"
    ),
    "job.requirements says what a machine must be": r"requirements exitrequirements",
    "the graph ranks machines itself, job.requirements says what one must be": r"rank preferences",
    "job.deadline, job.hold_limit and job.idle_limit say when a job is given up": (
        r"periodic\w* onexit\w* allowed(job|execute)duration timerremove\w* joblease\w* hold leave(job)?inqueue"
    ),
    "job.retries says how often a job is tried again": r"(job)?(maxretries|successexitcode) retryuntil",
    "job.checkpoint says how often a training is saved, and SIGTERM has it saved": (
        r"\w*checkpoint\w* (remove|rm|hold)?killsig\w*"
    ),
    "the graph says what a job runs": (
        r"executable cmd arg(ument)?s\d? shell universe jobuniverse interactive\w* allow\w*v1 docker\w* "
        r"container\w* want(container|docker)\w* vm\w* jobvm\w* java\w* jar\w* grid\w* remote\w* noopjob\w* "
        r"isnoopjob jobnoop\w* skipifdataflow jobset\w* (machine|node)count (min|max|current)hosts parallel\w* "
        r"wantparallel\w* deferral\w* cron\w*"
    ),
    "the graph says which files a job reads, writes and takes along": (
        r"initialdir jobiwd iwd stdin input in stdout output out stderr error err stream\w* transfer\w* "
        r"shouldtransferfiles whentotransferoutput preserverelativepaths \w*destination \w*remaps copytospool "
        r"spooled\w* commoninput\w* xcatalog\w* publicinputfiles fetchfiles localfiles appendfiles compressfiles "
        r"bufferfiles executablesize"
    ),
    "the graph reads how its jobs went": (
        r"log logxml userlog\w* ulog\w* dagmanlog submitevent\w* batch(name|id) jobbatch(name|id) chirp\w* "
        r"wantdelayedupdates"
    ),
    "`notify` says whom to tell": r"(job)?notification",
    "the graph's own": r"regiondag\w* dag\w*",
    "HTCondor's own": (
        r"cluster(id)? proc(ess|id) owner user mytype targettype qdate jobstatus lastjobstatus enteredcurrentstatus "
        r"jobsubmit(file|method) submitversion condor(version|platform) exit(status|code|bysignal|reason|signal) "
        r"jobstartdate shadowbday completiondate (hold|release|remove|vacate)reason\w* "
        r"num(ckpts|restarts|jobstarts|jobcompletions|holds\w*|systemholds|shadow\w*|vacates\w*) committed\w*time "
        r"cumulative\w* total(suspensions|submitprocs) last\w*suspension\w*"
    ),
}
# Words that submit files are made of, and macros of ours: commands alone, as attributes have names of their own.
_WORDS = {
    "a word of submit files": (
        r"queue iterate include use if elif else endif warning dollar job retry node step row item(index)? "
        r"materialize\w* max(materialize|idle)"
    ),
    "a name that the graph uses itself": (
        r"trial memory gpus largermemory avoid idleuntil memoryholds outofmemory otherholds passing runseconds "
        r"toolate toomuchoutput heldtoolong idletoolong first last part"
    ),
}


def canonical_name(name: str) -> str:
    """Return a command as it is written into submit files; `+X` and `my.X` are `MY.X`.

    >>> canonical_name("+ProjectName")
    'MY.ProjectName'
    """
    attribute = re.fullmatch(r"(?:\+|[Mm][Yy]\.)(.*)", name, re.DOTALL)
    return f"{ATTRIBUTE}{attribute[1]}" if attribute else name


def why_reserved(name: str) -> str:
    """Say why a study may not give a command, named canonically, and what to do; nothing where it may.

    >>> why_reserved("MY.RequestCpus")
    'job.cpus says how many'
    """
    word = name.removeprefix(ATTRIBUTE).replace("_", "").lower()
    reserved = _RESERVED if name.startswith(ATTRIBUTE) else {**_WORDS, **_RESERVED}
    return next((why for why, names in reserved.items() if re.fullmatch("|".join(names.split()), word)), "")
