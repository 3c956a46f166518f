"""Pictures become the data files of every region, whole or not at all."""

import numpy as np
import pytest
from PIL import Image

from nnlib.cli import main
from nnlib.data.file import check_data_file, read_data
from nnlib.importing.images import regions, write
from nnlib.importing.images.pictures import PictureForm
from nnlib.util.threads import workers


@pytest.fixture
def source(tmp_path):
    """Return pictures of two regions and three classes, of which the second region has two."""
    random = np.random.default_rng(1)
    for region, labels in (("Nord", "abc"), ("Süd", "ac")):
        for label in labels:
            for n in range(10):
                path = tmp_path / "pictures" / region / label / f"{n}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(random.integers(0, 256, (5, 6, 3), dtype=np.uint8)).save(path)
    return tmp_path / "pictures"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_all_parts_of_all_regions(source, tmp_path, capsys):
    out = tmp_path / "data"
    assert main(["import", str(source), "--out", str(out), "--size", "4x3", "--threads", "2"]) == 0
    said = capsys.readouterr()
    assert "taken as --format images" in said.err
    assert "warning: few pictures to learn from: Nord 6 of 'a', Süd 6 of 'a'" in said.err
    assert "Nord" in said.out
    assert [line.split()[1:5] for line in said.out.splitlines()[1:]] == [["3", "18", "6", "6"], ["2", "12", "4", "4"]]
    assert [name for name in names(out) if name.startswith("nord")] == [
        f"nord.{part}.nc" for part in ("final", "test", "train", "valid")
    ]
    whole = {part: read_data(out / f"nord.{part}.nc") for part in ("train", "valid", "final", "test")}
    for part, data in whole.items():
        pictures, classes = data.sets
        assert (pictures.name, classes.name, classes.features) == ("input", "output", ("a", "b", "c"))
        assert pictures.dimensions == (4, 3, 3) and pictures.rows.values.dtype == np.uint8 and classes.boolean
        assert data.region == "Nord"
        for row, name in enumerate(data.samples):
            image = Image.open(source / name).resize((4, 3), Image.Resampling.BILINEAR, _middle(6, 5), reducing_gap=2.0)
            np.testing.assert_array_equal(pictures.rows.values[row].reshape(3, 3, 4), _planes(image))
            assert classes.features[classes.rows.indices[row]] == name.split("/")[1], part
    assert whole["final"].samples == whole["train"].samples + whole["valid"].samples
    south = check_data_file(next(out.glob("s-d-*.train.nc")))
    assert south.region == "Süd" and south.sets[1].width == 3


def _middle(width, height):
    down = width / (4 / 3)
    return 0, (height - down) / 2, width, (height + down) / 2


def _planes(image):
    return np.asarray(image).transpose(2, 0, 1)


def test_the_same_bytes_on_any_number_of_threads(source, tmp_path):
    found = []
    for threads in (1, 3):
        out = tmp_path / f"data{threads}"
        with workers(threads) as each:
            assert regions.import_images(source, out, each, PictureForm(4, 4, grey=True)) == 0
        found.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert found[0] == found[1]
    assert read_data(tmp_path / "data1/nord.test.nc").sets[0].dimensions == (4, 4, 1)


def test_a_table_says_the_parts_and_an_older_import_is_replaced(source, tmp_path, capsys):
    out = tmp_path / "data"
    assert main(["import", str(source), "--out", str(out), "--size", "4"]) == 0
    lines = [f"Nord/{label}/{n}.png,Nord,{label},train" for label in "ab" for n in range(3)]
    (source / "t.csv").write_text("\n".join(["path,region,class,split", *lines, "Nord/b/9.png,Nord,b,test"]) + "\n")
    assert main(["import", str(source / "t.csv"), "--format", "images", "--out", str(out), "--size", "4"]) == 0
    assert "nord.valid.nc" not in names(out) and "removed in" in capsys.readouterr().err
    assert read_data(out / "nord.final.nc").samples == read_data(out / "nord.train.nc").samples
    assert read_data(out / "nord.test.nc").samples == ("Nord/b/9.png",)


def test_broken_pictures_are_named(source, tmp_path, capsys):
    for n in range(7):
        (source / "Nord/a" / f"{n}.png").write_bytes(b"torn")
    out = tmp_path / "data"
    assert main(["import", str(source), "--out", str(out)]) == 4
    said = capsys.readouterr().err
    assert said.count("no picture of a known kind") == 5 and "5 pictures and perhaps more cannot be read" in said
    assert names(tmp_path) == ["pictures"]
    assert main(["import", str(source), "--out", str(out), "--broken", "skip"]) == 0
    said = capsys.readouterr().err
    assert said.count("warning: left out: ") == 6 and "2 more pictures" in said
    kept = sum(read_data(out / f"nord.{part}.nc").sets[0].examples for part in ("train", "valid", "test"))
    assert kept == 23


def test_large_pictures_are_decoded_in_smaller_blocks(source, tmp_path, monkeypatch):
    assert write.block_of(PictureForm(64, 64)) == write.BLOCK
    assert write.block_of(PictureForm(4096, 4096)) == 1
    asked, out = [], {}
    for room in (1 << 26, 7 * 4 * 3 * 3, 1):
        monkeypatch.setattr(write, "ROOM", room)
        with workers(2) as each:
            regions.import_images(
                source,
                tmp_path / str(room),
                lambda act, some, each=each: asked.append(len(some)) or each(act, some),
                PictureForm(4, 3),
            )
        out[room] = {path.name: path.read_bytes() for path in (tmp_path / str(room)).iterdir()}
    assert asked[:2] == [30, 20] and max(asked[2:]) == 7 and asked[-50:] == [1] * 50
    assert out[1 << 26] == out[7 * 4 * 3 * 3] == out[1]


def test_names_of_other_files_reach_no_terminal_as_they_are(source, tmp_path, capsys):
    (source / "Nord/a/one\x1b[2J\ntwo.txt").touch()
    assert main(["import", str(source), "--out", str(tmp_path / "data"), "--size", "4"]) == 0
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "1 files: 'Nord/a/one\\x1b[2J\\ntwo.txt'" in " ".join(said.split())


def test_copies_are_told(source, tmp_path, capsys):
    one = Image.open(source / "Nord/a/0.png")
    for n in range(10):
        one.save(source / f"Nord/b/{n}.png")
    assert main(["import", str(source), "--out", str(tmp_path / "data")]) == 0
    assert "Nord: 1 pictures are the same in several parts" in capsys.readouterr().err


@pytest.mark.parametrize("late", [0, 1])
def test_ctrl_c_leaves_nothing(source, tmp_path, monkeypatch, late):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(*((write, "decode", stop) if not late else (regions, "tell_replaced", stop)))
    monkeypatch.setattr(regions, "_print", stop if late else regions._print)
    with workers(2) as each, pytest.raises(KeyboardInterrupt):
        regions.import_images(source, tmp_path / "data", each)
    assert names(tmp_path) == (["data", "pictures"] if late else ["pictures"])


def test_some_regions_keep_the_classes_of_all(source, tmp_path):
    assert main(["import", str(source), "--out", str(tmp_path / "data"), "--regions", "Süd", "--size", "4"]) == 0
    [path] = (tmp_path / "data").glob("*.train.nc")
    assert read_data(path).sets[1].features == ("a", "b", "c")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--regions", "Ost"], "no region 'Ost', there are: Nord, Süd"),
        (["--test", "28d"], "--test: not with --format images, legal: a share"),
        (["--test", "60%", "--validate", "40%"], "together below 100%"),
        (["--size", "0x3"], "'0x3' is not legal, legal: width x height"),
        (["--split", "random"], "--split: not with --format images"),
        (["--format", "purchases", "--test", "10%"], "legal: whole days"),
        (["--format", "purchases", "--grey"], "--grey: not with --format purchases"),
    ],
)
def test_other_options(source, tmp_path, capsys, options, message):
    try:
        code = main(["import", str(source), "--out", str(tmp_path / "data"), *options])
    except SystemExit as error:
        code = error.code
    assert code in (2, 4) and message in capsys.readouterr().err
    assert names(tmp_path) == ["pictures"]


def test_one_class_or_nothing_to_learn_from(source, tmp_path, capsys):
    (source / "one.csv").write_text("path,region,class\nNord/a/0.png,Nord,a\n")
    (source / "none.csv").write_text("path,region,class,split\nNord/a/0.png,N,a,train\nNord/b/0.png,S,b,test\n")
    for name, message in (("one", "is the only class"), ("none", "region 'S' has no picture to learn from")):
        arguments = ["import", str(source / f"{name}.csv"), "--format", "images", "--out", str(tmp_path / "data")]
        assert main(arguments) == 4 and message in capsys.readouterr().err
