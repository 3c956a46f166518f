"""Which submit commands a study may give."""

from __future__ import annotations

import doctest
import re

import pytest

from regiondag.study import submit_commands
from regiondag.study.submit_commands import canonical_name, why_reserved
from regiondag.util.resources import resource_dir


def test_doctests():
    assert doctest.testmod(submit_commands).failed == 0


@pytest.mark.parametrize("name", ["+Foo", "MY.Foo", "my.Foo", "mY.Foo"])
def test_an_attribute_has_one_name(name):
    assert canonical_name(name) == "MY.Foo" and canonical_name("Foo") == "Foo" and canonical_name("MYFoo") == "MYFoo"


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("request_cpus REQUEST_CPUS Request_Cpus RequestCpus +RequestCpus My.requestcpus request_cpu", "job.cpus"),
        ("request_memory retry_request_memory +RequestMemory memory_usage image_size", "job.memory"),
        ("request_disk disk_usage", "job.disk"),
        ("request_gpus require_gpus gpus_minimum_capability gpus_minimum_memory +RequireGPUs cuda_version", "job.gpus"),
        ("requirements +Requirements", "job.requirements"),
        ("rank preferences", "job.requirements"),
        ("periodic_remove periodic_hold periodic_vacate on_exit_remove on_exit_hold_reason allowed_job_duration hold "
         "+PeriodicRemoveReason leave_in_queue +LeaveJobInQueue job_lease_duration", "job.deadline"),
        ("max_retries retry_until success_exit_code", "job.retries"),
        ("checkpoint_exit_code transfer_checkpoint_files checkpoint_destination kill_sig remove_kill_sig",
         "job.checkpoint"),
        ("executable arguments arguments2 universe shell docker_image container_image vm_type noop_job cron_minute "
         "deferral_time +Cmd +Args +Arguments +JobUniverse skip_if_dataflow machine_count", "what a job runs"),
        ("initialdir initial_dir job_iwd +Iwd input output error stdout stderr stdin +In +Out +Err stream_output "
         "transfer_input_files TransferInputFiles transfer_output_remaps should_transfer_files +TransferInput "
         "when_to_transfer_output preserve_relative_paths output_destination +CommonInputCatalogs +_x_catalog_a",
         "files"),
        ("log log_xml +UserLog dagman_log ulog_execute_attrs submit_event_notes batch_name +JobBatchName "
         "+ChirpEpoch +WantDelayedUpdates", "how its jobs went"),
        ("notification", "notify"),
        ("+RegiondagStudy +RegiondagAnything dagman_job_id +DAGNodeName", "the graph's own"),
        ("cluster Process +ClusterId +ProcId +Owner +JobStatus +QDate +NumHolds +HoldReason", "HTCondor's own"),
        ("queue Queue include use if elif else endif warning DOLLAR max_materialize", "a word of submit files"),
    ],
)  # fmt: skip
def test_what_the_graph_lives_by_is_refused(names, why):
    for name in names.split():
        assert why in why_reserved(canonical_name(name)), name


def test_no_name_that_our_templates_give_or_use_is_free():
    for template in ("job.sub.j2", "recommend.sub.j2"):
        text = (resource_dir("templates") / template).read_text()
        given = re.findall(r"^([A-Za-z_.]+) *=", text, re.MULTILINE)
        used = re.findall(r"\$\((\w+)\)", text)
        assert len(given) > 10 and used
        for name in {*given, *used} - {"MY._x_catalog_"}:
            assert why_reserved(canonical_name(name)), name


FREE = """
accounting_group accounting_group_user concurrency_limits nice_user priority environment getenv job_max_vacate_time
max_job_retirement_time use_oauth_services x509userproxy want_graceful_removal request_fpgas keep_claim_idle
+ProjectName +WantGlideIn +WantFlocking +SingularityImage +JobDurationCategory +is_resumable +GPUJobLength
+WantGPULab +DESIRED_Sites +UNDESIRED_Sites +JobFlavour +MaxRuntime +AccountingGroup +Queue +Memory
"""


@pytest.mark.parametrize("name", FREE.split())
def test_what_pools_ask_for_is_free(name):
    assert why_reserved(canonical_name(name)) == ""
