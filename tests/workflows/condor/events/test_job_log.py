"""What POST reads in a node's own event log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.condor.events.job_log import JobFacts, read_job_log

LOG = """\
000 (003.000.000) 2026-11-22 05:42:22 Job submitted from host: <127.0.0.1:42723?addrs=127.0.0.1-42723>
    DAG Node: germany_t0000
...
001 (003.000.000) 2026-11-22 05:42:22 Job executing on host: <127.0.0.1:35629?addrs=127.0.0.1-35629>
\tSlotName: slot1_2@first.example.org
\tCpus = 1
...
001 (003.000.000) 2026-11-22 05:43:22 Job executing on host: <127.0.0.1:35629?addrs=127.0.0.1-35629>
\tSlotName: slot1_1@startd@second.example.org
...
009 (003.000.000) 2026-11-22 05:42:35 Job was aborted.
\tit ran for longer than its deadline, 2h

\tJob terminated by <127.0.0.1:34445> at 2026-11-22T05:42:34Z (using method 1: DEACTIVATE_CLAIM).
...
000 (014.000.000) 2026-11-22 05:42:22 Job submitted from host: <127.0.0.1:42723>
    DAG Node: germany_t0000
...
009 (014.000.000) 2026-11-22 05:42:35 Job was aborted.
\tvia condor_rm (by user regiondag)
...
"""


@pytest.mark.parametrize(
    ("job", "facts"),
    [
        ("3.0", JobFacts("second.example.org", "it ran for longer than its deadline, 2h")),
        ("14.0", JobFacts("", "via condor_rm (by user regiondag)")),
        ("4.0", JobFacts()),
        ("", JobFacts()),
    ],
)
def test_the_last_machine_and_the_reason_of_one_job(tmp_path, job, facts):
    (tmp_path / "job.log").write_text(LOG)
    assert read_job_log(tmp_path / "job.log", job) == facts


def test_without_a_log_nothing_is_known(tmp_path):
    assert read_job_log(tmp_path / "job.log", "3.0") == JobFacts()
    assert read_job_log(tmp_path, "3.0") == JobFacts()


@given(st.integers(0, len(LOG)), st.binary(max_size=40))
def test_a_torn_log_is_no_error(tmp_path_factory, end, rest):
    path = tmp_path_factory.mktemp("log") / "job.log"
    path.write_bytes(LOG.encode()[:end] + rest)
    facts = read_job_log(path, "3.0")
    assert facts.removed.isprintable() and facts.host.isprintable() and len(facts.removed) <= 1000


@pytest.mark.parametrize("name", ['slot1@"; x', "slot1@$(HOME)", "slot1@" + "a" * 300])
def test_what_is_no_name_of_a_machine_is_not_taken(tmp_path, name):
    text = LOG.replace("slot1_1@startd@second.example.org", name).replace("slot1_2@first.example.org", name)
    (tmp_path / "job.log").write_text(text)
    assert read_job_log(tmp_path / "job.log", "3.0").host == ""
