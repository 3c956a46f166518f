"""Folders and tables say which pictures there are; what leads elsewhere is refused."""

import pytest

from nnlib.errors import DataError
from nnlib.importing.images.listing import Picture, list_pictures, looks_like_pictures


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def test_folders(tmp_path):
    source = touch(
        tmp_path / "in", "B/x/2.JPG", "B/x/1.png", "A/y/1.webp", "A/y/Thumbs.db", "A/.hidden/1.png", "note.txt"
    )
    listing = list_pictures(source)
    assert listing.pictures == [
        Picture("A/y/1.webp", "A", "y"),
        Picture("B/x/1.png", "B", "x"),
        Picture("B/x/2.JPG", "B", "x"),
    ]
    assert sorted(listing.others) == ["A/y/Thumbs.db", "note.txt"]
    assert looks_like_pictures(source)


def test_other_files_do_not_hide_pictures(tmp_path):
    assert looks_like_pictures(touch(tmp_path / "one", "A/readme.txt", "A/x/1.png"))
    assert looks_like_pictures(touch(tmp_path / "two", "A/x/1.png", *(f"A/x/0{n}.txt" for n in range(9))))


def test_a_name_that_is_not_legal_is_shown_as_text(tmp_path):
    with pytest.raises(DataError) as caught:
        list_pictures(touch(tmp_path / "in", "R/x/1\x1b[2J.png"))
    assert "Path(" not in str(caught.value) and "\x1b" not in str(caught.value)
    assert "in/R/x/1\\x1b[2J.png': " in str(caught.value)


def test_one_region(tmp_path):
    source = touch(tmp_path / "in", "x/1.png", "y/1.png")
    assert {(one.region, one.label) for one in list_pictures(source, "Süd").pictures} == {("Süd", "x"), ("Süd", "y")}
    assert looks_like_pictures(source)


@pytest.mark.parametrize(
    ("names", "one_region", "message"),
    [
        (("x/1.png",), "", r"a picture in a region.*--one-region NAME"),
        (("R/x/1.png",), "all", "a folder in a class, with --one-region"),
        (("R/x/more/1.png",), "", "a folder in a class"),
        (("R/x/1.txt",), "", "no pictures, legal: REGION/CLASS/PICTURE"),
        (("R/x\n/1.png",), "", r"class 'x\\n' is not legal"),
    ],
)
def test_other_folders(tmp_path, names, one_region, message):
    with pytest.raises(DataError, match=message):
        list_pictures(touch(tmp_path / "in", *names), one_region)


@pytest.mark.parametrize("names", [(), ("a.csv",), ("R/x.csv",), ("R/x/1.txt",)])
def test_what_does_not_look_like_pictures(tmp_path, names):
    source = touch(tmp_path / "in", *names)
    source.mkdir(exist_ok=True)
    assert not looks_like_pictures(source)
    assert not looks_like_pictures(tmp_path / "none")


@pytest.mark.parametrize("link", ["R", "R/x", "R/x/1.png"])
def test_links_out_of_the_folder_are_refused(tmp_path, link):
    elsewhere = touch(tmp_path / "secret", "x/1.png")
    source = touch(tmp_path / "in", "A/y/1.png")
    path = source / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to({"R": elsewhere, "R/x": elsewhere / "x"}.get(link, elsewhere / "x/1.png"))
    with pytest.raises(DataError, match=r"leads to .*secret.*, outside of"):
        list_pictures(source)


def test_links_within_the_folder_are_read(tmp_path):
    source = touch(tmp_path / "in", "A/y/1.png")
    (source / "A/y/2.png").symlink_to("1.png")
    assert [one.name for one in list_pictures(source).pictures] == ["A/y/1.png", "A/y/2.png"]


def table(folder, text):
    path = folder / "table.csv"
    path.write_text(text)
    return path


def test_a_table(tmp_path):
    touch(tmp_path, "b.png", "sub/a.jpg")
    path = table(tmp_path, "path,class,region,more\nsub/a.jpg,x,R,1\nb.png,y,R,2\n")
    assert list_pictures(path).pictures == [Picture("b.png", "R", "y"), Picture("sub/a.jpg", "R", "x")]
    path = table(tmp_path, "\ufeffpath,class,split\nsub/a.jpg,x,train\nb.png,y,test\n")
    assert list_pictures(path, "S").pictures == [
        Picture("b.png", "S", "y", "test"),
        Picture("sub/a.jpg", "S", "x", "train"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,class\n", "table.csv:1: no column 'region', there are: path, class"),
        ("path,class,region\na.png,,R\n", "table.csv:2: class is empty"),
        ("path,class,region\na.png\n", "table.csv:2: region is empty"),
        ("path,class,region\nnone.png,x,R\n", "table.csv:2: there is no file"),
        ("path,class,region\n/etc/passwd,x,R\n", "table.csv:2: path: '/etc/passwd' is not legal"),
        ("path,class,region\n../a.png,x,R\n", "table.csv:2: leads to .* outside of"),
        ("path,class,region\nloop.png,x,R\n", "table.csv:2: (.*loop.png is a link to itself|there is no file)"),
        ("path,class,region,split\na.png,x,R,later\n", "table.csv:2: split: 'later' is not legal, legal: train, valid"),
        ("path,class,region\na.png,x,R\na.png,y,R\n", r"a.png comes twice in region 'R'"),
        ('path,class,region\n"a.png,x,R\n', "legal: CSV"),
        ("", "no column 'region', there are: none"),
    ],
)
def test_other_tables(tmp_path, text, message):
    inside = touch(tmp_path / "in", "a.png")
    (inside / "loop.png").symlink_to("loop.png")
    touch(tmp_path, "a.png")
    with pytest.raises(DataError, match=message):
        list_pictures(table(inside, text))


def test_neither_folder_nor_table(tmp_path):
    with pytest.raises(DataError, match="is no folder and no table"):
        list_pictures(touch(tmp_path, "a.png") / "a.png")
    (tmp_path / "t.csv").write_bytes(b"path,class,region\n\xff,x,R\n")
    with pytest.raises(DataError, match="legal: UTF-8"):
        list_pictures(tmp_path / "t.csv")
