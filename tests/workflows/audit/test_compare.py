"""When a training that is repeated is the same one: every bit, or near enough on another kind of machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nnlib.contract import Result, Status
from regiondag.audit.compare import Record, Replayed, compare, find_other_kind
from regiondag.run.history import TrialOutcome

RESULT = Result(
    "malta_t0000",
    Status.OK,
    value=0.5,
    metrics={"p@10": 0.25},
    curve=(0.25, 0.5),
    best_epoch=2,
    epochs=2,
    examples=10,
    backend="numpy",
    host="a",
    machine={"cpu": "x", "architecture": "x86_64"},
    versions={"numpy": "2.2", "scipy": "1.15"},
)
OK = TrialOutcome(0, "ok", value=0.5, metrics={"p@10": 0.25}, curve=(0.25, 0.5), best_epoch=2, result="r" * 64)
RECORD = Record(OK, RESULT, "r" * 64, (2.0, 1.0), "m" * 64)
AGAIN = Replayed(RESULT, "other", (2.0, 1.0), "m" * 64)
ELSEWHERE = replace(RESULT, machine={"cpu": "y", "architecture": "x86_64"})


def names(verdict) -> list[str]:
    return [difference.name for difference in verdict.differences]


def test_the_same_bits():
    verdict = compare(RECORD, AGAIN, final=False)
    assert verdict.equal and verdict.same and verdict.other_kind == ()
    # status, value, best epoch, curve, a metric of the journal; these with epochs and examples of the result; 2 losses
    assert verdict.figures == 5 + 7 + 2
    assert compare(RECORD, AGAIN, final=True).figures == 14
    assert compare(replace(RECORD, result=None), AGAIN, final=False).figures == 7


def test_one_bit_on_the_same_kind_of_machine_is_a_difference():
    again = replace(AGAIN, result=replace(RESULT, value=0.5000001))
    verdict = compare(RECORD, again, final=False)
    assert names(verdict) == ["journal: value", "result.json: value"] and not verdict.same
    assert [(one.recorded, one.replayed, one.apart) for one in verdict.differences] == [
        ("0.5", "0.5000001", "1e-07")
    ] * 2


def test_other_kernels_are_another_kind_of_machine_but_for_a_gpu():
    then = replace(RESULT, versions=dict(RESULT.versions) | {"openblas": "0.3.31 Haswell"})
    now = replace(RESULT, versions=dict(RESULT.versions) | {"openblas": "0.3.31 SkylakeX"})
    assert find_other_kind(replace(RECORD, result=then), now) == ("openblas 0.3.31 Haswell then, 0.3.31 SkylakeX now",)
    assert find_other_kind(RECORD, now) == ()  # of a run that did not say it
    on_gpu = replace(RECORD, result=replace(then, backend="cupy"))
    assert find_other_kind(on_gpu, replace(now, backend="cupy")) == ()


@pytest.mark.parametrize(("apart", "same"), [(0.0099, True), (0.0101, False), (-0.0099, True), (-0.0101, False)])
def test_a_ranking_metric_elsewhere_may_be_a_hundredth_apart(apart, same):
    again = replace(AGAIN, result=replace(ELSEWHERE, value=0.5 + apart))
    verdict = compare(RECORD, again, final=False)
    assert verdict.same is same and not verdict.equal
    assert verdict.other_kind == ("cpu x then, y now",)


@pytest.mark.parametrize(("loss", "same"), [(2.0099, True), (2.0101, False), (1.9901, True), (1.9899, False)])
def test_a_loss_elsewhere_may_be_a_two_hundredth_of_itself_apart(loss, same):
    verdict = compare(RECORD, replace(AGAIN, result=ELSEWHERE, losses=(loss, 1.0)), final=False)
    assert names(verdict) == ["log.jsonl: loss after epoch 1"] and verdict.same is same
    value = replace(AGAIN, result=replace(ELSEWHERE, value=loss), losses=RECORD.losses)
    record = replace(RECORD, settled=replace(OK, value=2.0), result=replace(RESULT, value=2.0))
    assert compare(record, value, final=False).same is same  # a value beyond one is a loss


@pytest.mark.parametrize(("value", "again", "same"), [(1.0, 0.9901, True), (0.02, 0.0299, True), (1.0, 0.5, False)])
def test_up_to_one_a_value_is_a_metric(value, again, same):
    record = replace(RECORD, settled=replace(OK, value=value), result=replace(RESULT, value=value))
    found = replace(AGAIN, result=replace(ELSEWHERE, value=again))
    assert compare(record, found, final=False).same is same


def test_what_the_others_reached_counts_too():
    other = replace(AGAIN, result=replace(RESULT, compared={"floor": {"p@10": 0.3}}))
    record = replace(RECORD, result=replace(RESULT, compared={"floor": {"p@10": 0.4}}))
    assert names(compare(record, other, final=False)) == ["result.json: floor p@10"]


@pytest.mark.parametrize(("loss", "same"), [(0.5024, True), (0.5026, False)])
def test_a_loss_below_one_is_one_by_its_name(loss, same):
    record, again = replace(RECORD, losses=(0.5,)), replace(AGAIN, result=ELSEWHERE, losses=(loss,))
    assert compare(record, again, final=False).same is same


def test_another_best_epoch_is_excused_elsewhere_only():
    changed = {"best_epoch": 1, "curve": (0.25, 0.5, 0.5), "epochs": 3}
    verdict = compare(RECORD, replace(AGAIN, result=replace(ELSEWHERE, **changed)), final=False)
    assert verdict.same and "result.json: epochs" in names(verdict)
    [curve] = [one for one in verdict.differences if one.name == "journal: curve"]
    assert (curve.recorded, curve.replayed, curve.apart) == ("2 epochs, 0.5 last", "3 epochs, 0.5 last", "0")
    assert not compare(RECORD, replace(AGAIN, result=replace(RESULT, **changed)), final=False).same


def test_a_status_is_never_excused():
    diverged = Result("malta_t0000", Status.DIVERGED, backend="numpy", machine=ELSEWHERE.machine)
    verdict = compare(RECORD, replace(AGAIN, result=diverged), final=False)
    assert not verdict.same
    assert ("journal: status", "ok", "diverged") in [
        (one.name, one.recorded, one.replayed) for one in verdict.differences
    ]
    assert ("journal: value", "0.5", "none") in [(one.name, one.recorded, one.replayed) for one in verdict.differences]


@pytest.mark.parametrize(("epochs", "machine", "same"), [(2, "x", True), (1, "x", False), (1, "y", True)])
def test_of_a_training_that_diverged_the_epochs_count(epochs, machine, same):
    result = Result("n", Status.DIVERGED, host="a", machine={"cpu": machine})
    record = Record(TrialOutcome(0, "diverged"), replace(result, machine={"cpu": "x"}), "", (2.0, 1.0), "")
    verdict = compare(record, Replayed(result, "", (2.0, 1.0)[:epochs], ""), final=False)
    assert verdict.same is same and verdict.figures == 2 + epochs + 1
    assert names(verdict) == ([] if epochs == 2 else ["log.jsonl: epochs"])


def test_digests():
    torn = compare(replace(RECORD, result_digest="x" * 64), AGAIN, final=False)
    assert [(one.recorded, one.replayed, one.within) for one in torn.differences] == [("r" * 12, "x" * 12, False)]
    assert compare(replace(RECORD, result_digest=""), AGAIN, final=False).differences[0].replayed == "missing"
    other = replace(AGAIN, model="n" * 64)
    assert compare(RECORD, other, final=False).equal and names(compare(RECORD, other, final=True)) == ["model: sha256"]
    assert not compare(RECORD, other, final=True).same
    assert compare(RECORD, replace(other, result=ELSEWHERE), final=True).same


def test_what_makes_another_kind_of_machine():
    assert find_other_kind(replace(RECORD, result=None), RESULT) == ()
    nowhere = replace(RECORD, result=replace(RESULT, machine={}))
    assert find_other_kind(nowhere, RESULT) == ()
    assert find_other_kind(nowhere, replace(RESULT, host="b")) == ("the run did not record its machine, a; this is b",)
    newer = replace(RESULT, versions={"numpy": "2.3"})
    assert find_other_kind(RECORD, newer) == ("numpy 2.2 then, 2.3 now", "scipy 1.15 then, none now")
    assert (
        find_other_kind(RECORD, replace(RESULT, versions=RESULT.versions | {"cuda": "13"})) == ()
    )  # was not there then


def test_engines_of_cudnn_are_another_order_of_sums():
    on_gpu = replace(
        RESULT, backend="cupy", versions=RESULT.versions | {"cudnn": "9.28.1", "cudnn engines": "forward 0"}
    )
    other = replace(on_gpu, versions=on_gpu.versions | {"cudnn engines": "forward 44"})
    assert find_other_kind(replace(RECORD, result=on_gpu), on_gpu) == ()
    assert find_other_kind(replace(RECORD, result=on_gpu), other) == ("cudnn engines forward 0 then, forward 44 now",)


def test_rounded_products_depend_on_what_sums_them():
    here = replace(RESULT, precision="bf16")
    with_mkl = replace(here, versions=RESULT.versions | {"mkl": "2026.2"})
    assert find_other_kind(replace(RECORD, result=here), with_mkl) == ("mkl none then, 2026.2 now",)
    assert find_other_kind(replace(RECORD, result=with_mkl), here) == ("mkl 2026.2 then, none now",)
    assert find_other_kind(replace(RECORD, result=with_mkl), with_mkl) == ()
    compiled = replace(here, versions=RESULT.versions | {"bf16 products": "avx512"})
    assert find_other_kind(replace(RECORD, result=compiled), here) == ("bf16 products avx512 then, none now",)


def test_on_a_gpu_processors_do_not_matter():
    gpu = replace(RESULT, backend="cupy", gpu={"name": "A10G"}, versions={"cupy": "14", "numpy": "2.2"})
    then = replace(RECORD, result=gpu)
    now = replace(gpu, machine={"cpu": "y", "architecture": "x86_64"}, versions={"cupy": "14", "numpy": "2.3"})
    assert find_other_kind(then, now) == ()
    assert find_other_kind(then, replace(now, gpu={"name": "L4"})) == ("GPU A10G then, L4 now",)
    assert find_other_kind(then, replace(now, machine={"cpu": "y", "architecture": "arm"})) == (
        "architecture x86_64 then, arm now",
    )
    assert find_other_kind(then, replace(now, backend="numpy"))[0] == "backend cupy then, numpy now"
