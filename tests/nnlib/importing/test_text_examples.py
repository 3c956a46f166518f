import gzip
import io
import re

import netCDF4
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnlib import cli
from nnlib.data.file import read_all, read_data
from nnlib.errors import DataError
from nnlib.importing import text_examples
from nnlib.importing.index_files import read_index, write_index
from nnlib.util import terminal as screen

TEXT = "ann\tx,1:y,2:z\nbob\ty:y,0.5:\n\ncat\t\n"


def run(folder, text=TEXT, new="create", out="out.nc", name="gl_input", **options):
    """Import; texts by file name make a folder."""
    if isinstance(text, dict):
        (folder / "in").mkdir(exist_ok=True)
        for file, content in text.items():
            (folder / "in" / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    else:
        (folder / "in.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    source = folder / ("in" if isinstance(text, dict) else "in.txt")
    words = ["import", str(source), "--format", "dsstne", "--dataset", name, "--out", str(folder / out)]
    words += ["--features", str(folder / "f.txt"), "--samples", str(folder / "s.txt")]
    words += ["--new-features", new] if new else []
    words += [word for key, value in options.items() for word in ([f"--{key}", value] if value else [f"--{key}"])]
    return cli.main(words)


def rows(path):
    """Sample -> features with values, in the order of the file."""
    data = read_data(path)
    (s,) = data.sets
    found = {}
    for n, sample in enumerate(data.samples):
        some = slice(s.rows.indptr[n], s.rows.indptr[n + 1])
        units = [s.features[unit] for unit in s.rows.indices[some]]
        found[sample] = units if s.boolean else list(zip(units, s.rows.values[some].tolist(), strict=True))
    return found


def test_indicators_and_indexes(tmp_path, capsys):
    assert run(tmp_path) == 0
    assert rows(tmp_path / "out.nc") == {"ann": ["x", "y", "z"], "bob": ["y", "y"], "cat": []}
    assert (tmp_path / "f.txt").read_text() == "x\t0\ny\t1\nz\t2\n"
    assert (tmp_path / "s.txt").read_text() == "ann\t0\nbob\t1\ncat\t2\n"
    assert capsys.readouterr() == (f"{tmp_path / 'out.nc'}: 3 examples, width 3, 5 nonzeros, indicator\n", "")
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.nc", "f.txt", "s.txt"}


def test_values(tmp_path):
    assert run(tmp_path, "ann\tx,1:y,-2.5e-1\r\nbob\ty,3:y,.5\r\n", type="analog") == 0
    assert rows(tmp_path / "out.nc") == {"ann": [("x", 1), ("y", -0.25)], "bob": [("y", 3), ("y", 0.5)]}


def test_new_features(tmp_path, capsys):
    assert run(tmp_path) == 0
    assert run(tmp_path, "ann\tz:w:v:w\n", new="merge") == 0
    assert read_index(tmp_path / "f.txt") == {"x": 0, "y": 1, "z": 2, "w": 3, "v": 4}
    assert rows(tmp_path / "out.nc")["ann"] == ["z", "w", "v", "w"]
    before = (tmp_path / "f.txt").stat()
    assert run(tmp_path, "ann\tz:new:w:newer\n", new=None) == 0
    assert rows(tmp_path / "out.nc")["ann"] == ["z", "w"]
    assert "2 entries dropped, their features are not in the index" in capsys.readouterr().err
    assert (tmp_path / "f.txt").stat().st_mtime_ns == before.st_mtime_ns  # not written when nothing changed
    assert run(tmp_path, "ann\tz\n", new="create") == 0
    assert read_index(tmp_path / "f.txt") == {"z": 0}
    assert "f.txt: replaced; files made with it before have other numbers" in capsys.readouterr().err


def test_without_an_index_there_is_nothing_to_drop_from(tmp_path, capsys):
    for new in (None, "merge"):
        assert run(tmp_path, new=new) == 4
        assert "f.txt: there is no such feature index; make one with --new-features create" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_files_of_one_sample_index_never_misalign(tmp_path, capsys):
    assert run(tmp_path) == 0
    assert run(tmp_path, "dan\tx\nann\ty\n", out="more.nc", new="drop") == 0
    assert rows(tmp_path / "more.nc") == {"ann": ["y"], "bob": [], "cat": [], "dan": ["x"]}
    assert capsys.readouterr().err.splitlines() == [
        "2 samples of the index are not in the input: their rows are empty",
        "1 samples are new in the index: make files that go with this one again",
    ]
    assert run(tmp_path, out="again.nc", new="drop") == 0
    one, two = (read_data(tmp_path / name).samples for name in ("more.nc", "again.nc"))
    assert one == two


def test_the_movielens_recipe(tmp_path):
    """The same text for inputs and targets, with one index of samples."""
    assert run(tmp_path, "1\t31,1260759144:1029,1260759179\n2\t10,835355493\n") == 0
    assert (
        run(tmp_path, "1\t31,1260759144:1029,1260759179\n2\t10,835355493\n", out="b.nc", name="gl_output", new=None)
        == 0
    )
    for name, data_set in (("out.nc", "gl_input"), ("b.nc", "gl_output")):
        assert rows(tmp_path / name) == {"1": ["31", "1029"], "2": ["10"]}
        assert read_data(tmp_path / name).sets[0].name == data_set
    assert read_all([tmp_path / "out.nc"] * 2).sets[0].examples == 4


def test_a_later_line_of_a_sample_replaces_the_earlier(tmp_path):
    text = {"b.txt": "bob\tx\nann\ty\n", "a.txt": "ann\tx:y:z\nann\tz\n", "c.txt.gz": gzip.compress(b"bob\tz")}
    assert run(tmp_path, text) == 0
    assert rows(tmp_path / "out.nc") == {"ann": ["y"], "bob": ["z"]}


def test_what_is_skipped_is_told(tmp_path, capsys):
    assert run(tmp_path, "ann\tx\nbare\nbob\ty,1,2:z,3,4,5\nbare, too:a\n") == 0
    assert rows(tmp_path / "out.nc") == {"ann": ["x"], "bob": ["y", "z"]}
    assert capsys.readouterr().err.splitlines() == [
        f"{tmp_path}/in.txt:2: 2 lines without TAB skipped, the first here",
        f"{tmp_path}/in.txt:3: 3 values after the first skipped, the first here",
    ]


def test_widths_are_padded_when_asked(tmp_path):
    assert run(tmp_path, **{"pad-width": None}) == 0
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        assert int(file.width0) == 128
        assert len(file.dimensions["indToFeatureDim0"]) == 128
    assert rows(tmp_path / "out.nc")["ann"] == ["x", "y", "z"]


def test_samples_may_hold_colons_and_commas(tmp_path):
    assert run(tmp_path, "a:1,2\tx,1:y\n") == 0
    assert rows(tmp_path / "out.nc") == {"a:1,2": ["x", "y"]}


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (
            "ann\tx,1:y\n",
            {"type": "analog"},
            "in.txt:1: feature 'y' has no value, legal with --type analog: feature,value",
        ),
        ("ann\tx,1\nbob\ty,one\n", {"type": "analog"}, "in.txt:2: value 'one' is not a finite number"),
        ("ann\tx,\n", {"type": "analog"}, "in.txt:1: value '' is not a finite number"),
        ("ann\tx,nan\n", {"type": "analog"}, "in.txt:1: value 'nan' is not a finite number"),
        ("ann\tx,1e39\n", {"type": "analog"}, "in.txt:1: value '1e39' is not a finite number"),
        ("ann\tx,1_0\n", {"type": "analog"}, "in.txt:1: value '1_0' is not a finite number"),
        (f"ann\tx,{'1' * 50}\n", {"type": "analog"}, "is not a finite number"),
        ("ann\tx\n\tx\n", {}, "in.txt:2: an empty sample, legal: sample<TAB>feature:feature"),
        ("ann\tx:,5\n", {}, "in.txt:1: a value without a feature, legal: feature,value"),
        ("ann\tx\nbob\ty\tz\n", {}, "in.txt:2: more than one TAB, legal: one, after the sample"),
        ("ann\tx\nbob\ty\0\n", {}, "in.txt:2: a zero byte; this is no text file"),
        (b"ann\tx\nbob\t\xff\n", {}, "in.txt:2: cannot be read: 'utf-8' codec can't decode"),
        ("", {}, "no feature, legal: sample<TAB>feature[,value]"),
        ({}, {}, "a folder without files, legal: a text file, or a folder of text files"),
        ({"a.gz": b"plain"}, {}, "a.gz: cannot be read: Not a gzipped file"),
    ],
)
@pytest.mark.parametrize("block", [3, 1 << 20])
def test_bad_texts(tmp_path, capsys, monkeypatch, text, options, words, block):
    monkeypatch.setattr(text_examples, "BLOCK", block)
    assert run(tmp_path, text, **options) == 4
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out.nc").exists()
    assert not (tmp_path / "f.txt").exists()


@pytest.mark.parametrize(("out", "where"), [("f.txt", "--features"), ("s.txt", "--samples"), ("in.txt", "the input")])
def test_no_file_replaces_another(tmp_path, capsys, out, where):
    assert run(tmp_path, out=out) == 4
    assert f"is --out and {where}, legal: different files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
    assert (tmp_path / "in.txt").read_text() == TEXT


def test_data_that_cannot_be_written_leave_the_indexes(tmp_path, monkeypatch):
    assert run(tmp_path) == 0
    before = (tmp_path / "f.txt").read_bytes(), (tmp_path / "s.txt").read_bytes()

    def full(*_):
        raise OSError(28, "the disk is full", "out.nc")

    monkeypatch.setattr("nnlib.importing.dsstne_text.write_data", full)
    assert run(tmp_path, "dan\tv:w\n") == 75
    assert ((tmp_path / "f.txt").read_bytes(), (tmp_path / "s.txt").read_bytes()) == before


def test_usage(capsys, tmp_path):
    for words, error in (
        (["x.txt", "--format", "dsstne"], "--format dsstne needs --dataset, --features, --samples"),
        (["x.csv", "--dataset", "a", "--type", "analog"], "--dataset, --type: not with --format purchases"),
        (["x.txt", "--format", "dsstne", "--min-history", "3"], "--min-history: not with --format dsstne"),
    ):
        with pytest.raises(SystemExit) as caught:
            cli.main(["import", "--out", str(tmp_path / "o"), *words])
        assert caught.value.code == 2
        assert error in capsys.readouterr().err


INDEX = "".join(f"label{n}\t{n}\n" for n in range(5))


def test_a_valid_index(tmp_path):
    (tmp_path / "i").write_text(INDEX)
    assert read_index(tmp_path / "i") == {f"label{n}": n for n in range(5)}
    write_index(tmp_path / "j", dict(reversed(read_index(tmp_path / "i").items())))
    assert (tmp_path / "j").read_text() == INDEX
    (tmp_path / "empty").write_text("")
    assert read_index(tmp_path / "empty") == {}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("label3\t3", "i:6: label 'label3' comes twice"),
        ("label3\t9", "i:6: label 'label3' comes twice"),
        ("new\t3", "i:6: number 3 of 'new' is already that of 'label3'"),
        ("\t9", "i:6: label '' is not legal, legal: a text that is not empty"),
        ("9", "i:6: 0 TABs, legal: one, between a label and its number"),
        ("", "i:6: 0 TABs"),
        ("new\t9\tmore", "i:6: 2 TABs, legal: one"),
        ("new\t-1", "i:6: number '-1' is not legal, legal: 0 to 2147483646"),
        ("new\t1.0", "i:6: number '1.0' is not legal"),
        ("new\t", "i:6: number '' is not legal"),
        ("new\t2147483647", "i:6: number '2147483647' is not legal"),
        (
            "new\t" + "9" * 5000,
            "i:6: number '99999999999999999999999999999999999999999999999999999999999 is not legal",
        ),
        ("new\t٣", "i:6: number '٣' is not legal"),
    ],
)
def test_bad_indexes(tmp_path, line, words):
    (tmp_path / "i").write_text(f"{INDEX}{line}\nlast\t77\n")
    with pytest.raises(DataError, match=re.escape(words)):
        read_index(tmp_path / "i")


def test_an_index_that_is_no_text(tmp_path):
    (tmp_path / "i").write_bytes(INDEX.encode() + b"\xff\t7\n")
    with pytest.raises(DataError, match="i:6: cannot be read: 'utf-8' codec can't decode"):
        read_index(tmp_path / "i")


def test_numbers_with_gaps_and_far_away(tmp_path):
    (tmp_path / "f.txt").write_text("x\t7\ny\t2147483646\n")
    (tmp_path / "s.txt").write_text("zed\t900\nann\t2147483646\n")
    assert run(tmp_path, "ann\ty:x\n", new="drop") == 0
    data = read_data(tmp_path / "out.nc")
    assert (data.samples, data.sets[0].features, data.sets[0].width) == (("zed", "ann"), (), 2**31 - 1)
    assert run(tmp_path, "ann\tw\n", new="merge") == 4


LABEL = st.text(st.characters(codec="utf-8", exclude_characters="\0\t\n\r:,"), min_size=1, max_size=12)
FEW = st.sampled_from(["a", "b", "c", "aaaaaaaa", "aaaaaaaab", "é"])
ENTRY = st.tuples(FEW | LABEL, st.integers(-99, 99).map(lambda n: n / 4))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(FEW | LABEL, st.lists(ENTRY, max_size=5)), min_size=1, max_size=20),
    st.sampled_from([1, 9, 1 << 20]),
)
def test_what_is_written_is_read(tmp_path, lines, block):
    for name in ("f.txt", "s.txt"):
        (tmp_path / name).unlink(missing_ok=True)
    lines.append(("last", [("feature", 1.0)]))
    text = "".join(f"{sample}\t{':'.join(f'{f},{v}' for f, v in entries)}\n" for sample, entries in lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_examples, "BLOCK", block)
        assert run(tmp_path, text, type="analog") == 0
    assert rows(tmp_path / "out.nc") == dict(lines)
    assert list(read_index(tmp_path / "s.txt")) == list(dict(lines))
    assert list(read_index(tmp_path / "f.txt")) == list(dict.fromkeys(f for _, entries in lines for f, _ in entries))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_of_reading(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # on a dumb one no line is written over
    terminal, plain = Terminal(), io.StringIO()
    with screen.show_reading(100, "lines", terminal) as report:
        report(50, 12_345)
    assert "12,345 lines" in terminal.getvalue()
    with screen.show_reading(100, "lines", plain) as report:
        report(50, 5)
    assert plain.getvalue() == ""
    monkeypatch.setattr(screen, "SECONDS_BETWEEN_LINES", 0)
    with screen.show_reading(100, "lines", plain) as report:
        report(50, 1_000)
        report(0, 2_000)
    assert re.fullmatch(r"1,000 lines, 50%, [\d,]+/s\n2,000 lines, [\d,]+/s\n", plain.getvalue())
