"""Which GPU and how many threads a rank has."""

from __future__ import annotations

import pytest

from nnlib.parallel.places import environment_of, find_gpus, gpus_of, most_ranks, threads_of


@pytest.mark.parametrize(
    ("environment", "gpus"),
    [
        ({}, ()),
        ({"CUDA_VISIBLE_DEVICES": ""}, ()),
        ({"CUDA_VISIBLE_DEVICES": "2, 0"}, ("2", "0")),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, ("0",)),  # as CUDA has it
        ({"CUDA_VISIBLE_DEVICES": "GPU-c4a646d7,GPU-6a96bd13"}, ("GPU-c4a646d7", "GPU-6a96bd13")),
        ({"_CONDOR_AssignedGPUs": "GPU-c4a646d7,GPU-6a96bd13"}, ("GPU-c4a646d7", "GPU-6a96bd13")),
        ({"CUDA_VISIBLE_DEVICES": "1", "_CONDOR_AssignedGPUs": "0,1"}, ("1",)),  # somebody chose
        ({"CUDA_VISIBLE_DEVICES": "MIG-c7384736"}, ("MIG-c7384736",)),
    ],
)  # fmt: skip
def test_the_gpus_of_a_job_are_those_that_its_environment_names(environment, gpus):
    assert find_gpus(environment) == gpus


@pytest.mark.parametrize(("gpus", "ranks"), [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (16, 8)])
def test_ranks_are_as_many_as_gpus_and_a_power_of_two(gpus, ranks):
    assert most_ranks(gpus) == ranks


def test_each_rank_has_a_gpu_of_its_own():
    assert gpus_of(2, {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c"}) == ("GPU-a", "GPU-b")
    assert gpus_of(4, {}) == ("0", "1", "2", "3")


@pytest.mark.parametrize(("ranks", "threads", "each"), [(1, 8, 8), (2, 8, 4), (4, 6, 1), (8, 2, 1)])
def test_ranks_share_the_threads_of_the_job(ranks, threads, each):
    assert threads_of(ranks, threads) == each


def test_a_rank_sees_its_own_gpu_alone_and_its_blas_has_one_thread():
    job = {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", "OMP_NUM_THREADS": "8", "HOME": "/"}
    seen = environment_of(1, ("GPU-a", "GPU-b"), job)
    assert seen == {
        "CUDA_VISIBLE_DEVICES": "GPU-b",
        "HOME": "/",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    assert "CUDA_VISIBLE_DEVICES" not in environment_of(1, (), {})
