import gc
import subprocess
import sys
import threading

import netCDF4
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnlib.data import stream
from nnlib.data.file import check_data_file, read_all, read_data, write_data
from nnlib.data.rows import Csr, Dense, from_rows
from nnlib.data.sets import Data, DataSet
from nnlib.data.stream import FileRows, open_data
from nnlib.errors import DataError
from nnlib.util import memory, netcdf
from tests.nnlib.data.test_file import any_data, assert_same, assert_same_sets

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(stream, "BLOCK", 3)
    monkeypatch.setattr(stream, "LEAST_CACHE", 0)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(any_data(), st.integers(0, 300), st.data())
def test_streamed_is_what_is_in_memory(tmp_path, data, cache, draw):
    write_data(tmp_path / "a.nc", data)
    write_data(tmp_path / "b.nc", data)
    paths = [tmp_path / "a.nc", tmp_path / "b.nc"]
    whole, streamed = read_all(paths), open_data(paths, 0, cache)
    assert (streamed.region, tuple(streamed.samples)) == (whole.region, whole.samples)
    for ours, theirs in zip(whole.sets, streamed.sets, strict=True):
        assert (ours.sparse, ours.boolean, ours.examples) == (theirs.sparse, theirs.boolean, theirs.examples)
        assert not isinstance(theirs.rows, Csr | Dense)
        for _ in range(2):
            numbers = draw.draw(st.lists(st.integers(0, ours.examples - 1), max_size=12))
            order = np.array(numbers, dtype=np.int64)
            assert_same_sets(ours.take(order), theirs.take(order))


def many(examples, width=50):
    random = np.random.default_rng(4)
    rows = from_rows([sorted(set(random.integers(0, width, 6).tolist())) for _ in range(examples)], width)
    return Data(
        (
            DataSet("input", rows),
            DataSet("output", Csr(rows.indptr, rows.indices, width, random.random(rows.nonzeros, np.float32))),
            DataSet("images", Dense(random.integers(0, 255, (examples, 12), np.uint8)), dimensions=(3, 4)),
        ),
        tuple(f"customer {n}" for n in range(examples)),
    )


def test_small_files_are_read_into_memory(tmp_path):
    write_data(tmp_path / "a.nc", many(20))
    assert all(isinstance(s.rows, Csr | Dense) for s in open_data([tmp_path / "a.nc"]).sets)
    assert all(isinstance(s.rows, FileRows) for s in open_data([tmp_path / "a.nc"], limit_bytes=100).sets)


def test_a_block_is_read_once_while_it_is_kept_and_the_cache_is_bounded(tmp_path, monkeypatch):
    write_data(tmp_path / "a.nc", many(120))
    read = []
    monkeypatch.setattr(stream, "read_rows", lambda *a: (read.append(a[2:]), blocks_read(*a))[1])
    rows = open_data([tmp_path / "a.nc"], 0, 10**6).sets[0].rows
    for _ in range(3):
        rows.take(np.arange(120))
    assert sorted(read) == [(n, n + 3) for n in range(0, 120, 3)]
    read.clear()
    rows = open_data([tmp_path / "a.nc"], 0, 300).sets[0].rows
    for _ in range(2):
        rows.take(np.arange(120))
    assert rows.cache.bytes <= 300
    assert len(read) > 2 * rows.header.rows / rows.piece - 9


blocks_read = stream.read_rows


def test_rows_too_wide_for_the_cache_are_read_in_smaller_pieces(tmp_path, monkeypatch):
    write_data(tmp_path / "a.nc", many(100))
    monkeypatch.setattr(stream, "BLOCK", 4096)
    monkeypatch.setattr(stream, "PIECE", 48)
    assert open_data([tmp_path / "a.nc"], 0, 4096 * 40 * 12).sets[2].rows.piece == 4096
    rows = open_data([tmp_path / "a.nc"], 0, 4096 * 40 * 12 - 1).sets[2].rows
    assert rows.piece == 4
    assert_same(rows.take(np.array([99, 0, 50])).values, read_data(tmp_path / "a.nc").sets[2].rows.values[[99, 0, 50]])


def test_rows_that_are_not_there(tmp_path):
    write_data(tmp_path / "a.nc", many(20))
    rows = open_data([tmp_path / "a.nc"], 0).sets[0].rows
    for wrong in (-1, 20):
        with pytest.raises(IndexError):
            rows.take(np.array([wrong]))


def test_names_are_read_as_they_are_asked_for(tmp_path):
    data = many(20)
    write_data(tmp_path / "a.nc", data)
    write_data(tmp_path / "b.nc", data)
    names = open_data([tmp_path / "a.nc", tmp_path / "b.nc"], 0).samples
    expected = data.samples * 2
    assert (len(names), names[-1], names[7:33:5], names[19], names[20]) == (
        40,
        expected[-1],
        expected[7:33:5],
        expected[19],
        expected[20],
    )
    assert list(names) == list(expected)
    with pytest.raises(IndexError):
        names[40]


def test_a_bad_unit_is_named_when_its_block_is_read(tmp_path):
    write_data(tmp_path / "a.nc", many(20))
    with netCDF4.Dataset(tmp_path / "a.nc", "a") as file:
        file.variables["sparseIndex0"][int(file.variables["sparseStart0"][10])] = 50
        file.variables["sparseData1"][int(file.variables["sparseStart1"][19])] = np.nan
        file.variables["sparseEnd0"][13] = 10**9
    data = open_data([tmp_path / "a.nc"], 0)
    data.sets[0].rows.take(np.arange(9))
    with pytest.raises(DataError, match=r"^/.*/a\.nc: sparseIndex0: example 10 has unit 50, legal: 0 to 49"):
        data.sets[0].rows.take(np.array([9]))
    with pytest.raises(DataError, match=r"^/.*/a\.nc: sparseStart0, sparseEnd0: example 13 has the range"):
        data.sets[0].rows.take(np.array([12]))
    with pytest.raises(DataError, match=r"^/.*/a\.nc: variable sparseData1: example 19 has a value that is not"):
        data.sets[1].rows.take(np.array([18]))
    with pytest.raises(DataError, match="example 13 has the range"):
        check_data_file(tmp_path / "a.nc")


def test_many_threads_take_what_one_takes(tmp_path):
    write_data(tmp_path / "a.nc", many(300))
    whole, streamed = read_data(tmp_path / "a.nc"), open_data([tmp_path / "a.nc"], 0, 2000)
    wrong = []

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(60):
            n = int(random.integers(3))
            order = random.integers(0, 300, 9)
            try:
                assert_same_sets(whole.sets[n].take(order), streamed.sets[n].take(order))
            except BaseException as error:
                wrong.append(error)
                raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


PEAK = """
import sys, numpy as np
from pathlib import Path
from nnlib.data.stream import open_data
peak = lambda: int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) // 1024
data = open_data([Path(sys.argv[1])], 0, 16 << 20)
before = peak()
random, units = np.random.default_rng(1), 0
blocks = random.permutation(-(-data.sets[0].examples // 4096))
for group in np.array_split(blocks, len(blocks) // 4):
    order = (group[:, None] * 4096 + np.arange(4096)).reshape(-1)
    order = random.permutation(order[order < data.sets[0].examples])
    for batch in np.array_split(order, len(order) // 4096):
        units += data.sets[0].rows.take(batch).nonzeros
print(units, peak() - before)
"""


@pytest.mark.slow
def test_memory_stays_bounded(tmp_path):
    """A file of 192 MiB through a cache of 16 MiB."""
    examples, each = 300_000, 80
    path = tmp_path / "big.nc"
    with netCDF4.Dataset(path, "w") as file:
        wanted = {"datasets": 1, "attributes0": 1, "dimensions0": 1, "width0": 1000, "dataType0": 4}
        file.setncatts({name: np.uint32(value) for name, value in wanted.items()})
        file.name0 = "input"
        file.createDimension("examplesDim0", examples)
        file.createDimension("sparseDataDim0", examples * each)
        start = np.arange(examples, dtype="u8") * each
        file.createVariable("sparseStart0", "u8", ("examplesDim0",), fill_value=False)[:] = start
        file.createVariable("sparseEnd0", "u8", ("examplesDim0",), fill_value=False)[:] = start + each
        units = np.arange(examples * each, dtype="u4") % 1000
        file.createVariable("sparseIndex0", "u4", ("sparseDataDim0",), fill_value=False)[:] = units
        file.createVariable("sparseData0", "f4", ("sparseDataDim0",), fill_value=False)[:] = 1
    done = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)
    seen, grown = map(int, done.stdout.split())
    assert seen == examples * each
    assert grown < 64


def test_free_memory_honours_control_groups(tmp_path, monkeypatch):
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    (tmp_path / "self" / "cgroup").write_text("4:memory:/job\n3:cpu:/\n0::/a/b\n")
    monkeypatch.setattr(memory, "PROC", tmp_path)
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "groups")
    assert memory.available_bytes() == 8000 * 1024
    files = {
        "groups/memory/job/memory.limit_in_bytes": "6000000",
        "groups/memory/job/memory.usage_in_bytes": "1000000",
        "groups/memory/job/memory.stat": "cache 5\ntotal_inactive_file 500000\n",
        "groups/a/b/memory.max": "max",
        "groups/a/memory.max": "4000000",
        "groups/a/memory.current": "1000000",
        "groups/a/memory.stat": "inactive_file 100000\n",
    }
    for count, free in ((3, 5_500_000), (7, 3_100_000)):
        for name, content in list(files.items())[:count]:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
        assert memory.available_bytes() == free
    (tmp_path / "groups/a/memory.current").write_text("5000000")
    assert memory.available_bytes() == 0


def test_bytes_for_people():
    assert [memory.show_bytes(n) for n in (0, 1023, 1536, 3 << 20, 5 << 30, 2 << 40)] == [
        "0 bytes",
        "1023 bytes",
        "1.5 KiB",
        "3.0 MiB",
        "5.0 GiB",
        "2048.0 GiB",
    ]


def test_files_that_nobody_has_any_more_are_closed_by_the_next_who_reads(tmp_path):
    gc.collect()  # those of other tests
    write_data(tmp_path / "a.nc", many(30))
    netcdf.File(tmp_path / "a.nc")
    [abandoned] = netcdf.ABANDONED
    read_data(tmp_path / "a.nc")
    assert not netcdf.ABANDONED
    assert not abandoned.dataset.isopen()
