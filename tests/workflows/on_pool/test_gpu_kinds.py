"""What each GPU must be, on a real pool: simulated V100s, of which the pool's slot1 has two and slot2 none."""

from __future__ import annotations

import pytest

from regiondag.cli import main
from regiondag.condor.classads import parse_ad
from regiondag.condor.events.log import read_attempts
from regiondag.config.values import GPUS
from tests.workflows.conftest import STUDY
from tests.workflows.on_pool.test_study import finish, generate, submit

pytestmark = pytest.mark.condor

TEXT = STUDY.replace("  - {name: United Kingdom, data: data/uk.nc}\n", "").replace(
    "rounds: 2\n  parallel: 2", "rounds: 1\n  parallel: 1"
)


def doctor(run, capsys) -> tuple[int, str]:
    code = main(["doctor", str(run.path)])
    return code, " ".join(capsys.readouterr().out.split())


def test_jobs_go_where_gpus_are_as_they_must_be(pool, run_area, capsys):
    wish = 'gpus: {min: 2, max: 4, capability: ">= 7.0, < 8", memory: 16GB}, require_gpus: ECCEnabled || Fast, '
    run = generate(run_area, capsys, TEXT.replace("job: {", f"job: {{{wish}"))
    code, said = doctor(run, capsys)
    assert code == 0 and "train.sub of germany: matches 1 of 2 slots: slot1@" in said
    assert "; not slot2@" in said and "a GPU (it has none)" in said
    submit(run)
    assert finish(pool, run).exit_code == 0
    legs = {str(attempt.node): [leg.gpus for leg in attempt.legs] for attempt in read_attempts(run)}
    assert legs == {"germany_t0000": [2], "germany_final": [2]}


@pytest.mark.parametrize(
    ("wish", "lacking"),
    [
        ("capability: 8.0", "Capability >= 8.0 of each GPU (Tesla V100-PCIE-16GB: Capability 7.0)"),
        ("count: 2, memory: 40GB", "GlobalMemoryMb >= 40960 of each GPU (Tesla V100-PCIE-16GB: GlobalMemoryMb 24220)"),
        ('runtime: "12.4"', "MaxSupportedVersion >= 12040 of each GPU (Tesla V100-PCIE-16GB: no MaxSupportedVersion)"),
    ],
)
def test_doctor_says_what_gpus_lack(pool, run_area, capsys, wish, lacking):
    run = generate(run_area, capsys, TEXT.replace("job: {", f"job: {{gpus: {{{wish}}}, "))
    code, said = doctor(run, capsys)
    assert code == 6 and lacking in said and "a GPU (it has none)" in said


def test_words_mean_what_htcondors_own_commands_mean(pool, run_area):
    """condor_submit counts the capability, the memory and the version as we do."""
    wish = GPUS.of({"capability": 8.6, "memory": "40GB", "runtime": "12.4"})
    text = "executable = /bin/true\nrequest_gpus = 1\n"
    own = "gpus_minimum_capability = 8.6\ngpus_minimum_memory = 40GB\ngpus_minimum_runtime = 12.4\n"
    (run_area / "own.sub").write_text(f"{text}{own}queue\n")
    (run_area / "ours.sub").write_text(f"{text}require_gpus = {wish.each}\nqueue\n")
    own_ad, our_ad = (
        parse_ad(pool.run(["condor_submit", "-dry-run", "-", f"{run_area}/{name}.sub"], capture_output=True).stdout)
        for name in ("own", "ours")
    )
    for capability in (8.5, 8.6):
        for memory in (40959, 40960):
            for version in (12030, 12040):
                gpu = f"[Capability = {capability}; GlobalMemoryMb = {memory}; MaxSupportedVersion = {version}]"
                slot = parse_ad(f"Requirements = true\nGPUs_a = {gpu}\nAvailableGPUs = {{ GPUs_a }}\n")
                counts = [
                    ad.lookup("Requirements").eval(ad, slot) is True
                    for ad in (with_only_gpus(own_ad), with_only_gpus(our_ad))
                ]
                assert counts == [(capability, memory, version) == (8.6, 40960, 12040)] * 2, gpu


def with_only_gpus(ad):
    from regiondag.condor.classads import replace_requirements
    from regiondag.condor.matching import split_conjunction

    clauses = split_conjunction(str(ad.lookup("Requirements")))
    of_gpus = [clause for clause in clauses if "RequireGPUs" in clause]
    assert of_gpus
    return replace_requirements(ad, of_gpus)
