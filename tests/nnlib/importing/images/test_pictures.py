"""Pictures of every kind become the bytes that a person would say they are."""

import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from nnlib.importing.images import pictures
from nnlib.importing.images.pictures import PictureError, PictureForm, decode, pillow

SMALL = PictureForm(4, 3)


@pytest.fixture(autouse=True)
def with_pillow():
    with pillow():
        yield


def saved(folder, image, name="p.png", **how):
    path = folder / name
    image.save(path, **how)
    return path


def ramp(height, width, channels=3, dtype=np.uint8):
    values = np.arange(height * width * channels).reshape(height, width, channels) * 251 % 256
    return values.astype(dtype)[:, :, 0] if channels == 1 else values.astype(dtype)


def test_a_picture_of_the_wanted_size_keeps_its_bytes(tmp_path):
    values = ramp(3, 4)
    found = decode(saved(tmp_path, Image.fromarray(values)), SMALL)
    assert found.shape == (3, 3, 4) and found.dtype == np.uint8 and found.flags.c_contiguous
    np.testing.assert_array_equal(found, values.transpose(2, 0, 1))


@pytest.mark.parametrize(("size", "box"), [((12, 6), (2, 0, 10, 6)), ((8, 12), (0, 3, 8, 9)), ((8, 6), (0, 0, 8, 6))])
def test_the_middle_is_taken_and_averaged(tmp_path, size, box):
    image = Image.fromarray(ramp(size[1], size[0]))
    wanted = image.resize((4, 3), Image.Resampling.BILINEAR, box)
    np.testing.assert_array_equal(decode(saved(tmp_path, image), SMALL), np.asarray(wanted).transpose(2, 0, 1))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", [PictureForm(4, 3), PictureForm(3, 4), PictureForm(5, 5, grey=True)])
def test_as_the_camera_was_held(tmp_path, orientation, form):
    """Pillow turns the picture the other way, and the tag says that it was."""
    image = Image.fromarray(ramp(form.height, form.width))
    exif, back = Image.Exif(), Image.Exif()
    exif[0x0112] = orientation
    back[0x0112] = {6: 8, 8: 6}.get(orientation, orientation)
    stored = ImageOps.exif_transpose(Image.open(saved(tmp_path, image, "seen.png", exif=back)))
    found = decode(saved(tmp_path, stored, exif=exif), form)
    wanted = np.asarray(image.convert("L" if form.grey else "RGB")).reshape(form.height, form.width, -1)
    np.testing.assert_array_equal(found, wanted.transpose(2, 0, 1))


GREY = PictureForm(2, 1, grey=True)
COLOUR = PictureForm(2, 1)


@pytest.mark.parametrize(
    ("image", "how", "grey", "colour"),
    [
        (Image.fromarray(np.array([[0, 200]], np.uint8)), {}, [0, 200], [[0] * 3, [200] * 3]),
        (Image.fromarray(np.array([[0, 255]], np.uint8)).convert("1"), {}, [0, 255], [[0] * 3, [255] * 3]),
        (Image.fromarray(np.array([[257, 65535]], np.uint16)), {}, [1, 255], [[1] * 3, [255] * 3]),
        (Image.fromarray(np.array([[[9, 255], [90, 0]]], np.uint8)), {}, [9, 255], [[9] * 3, [255] * 3]),
        (
            Image.fromarray(np.array([[[255, 0, 0, 255], [0, 0, 255, 0]]], np.uint8)),
            {},
            [76, 255],
            [[255, 0, 0], [255, 255, 255]],
        ),
        (
            Image.fromarray(np.array([[[255, 0, 0, 102], [0, 0, 0, 255]]], np.uint8)),
            {},
            [183, 0],
            [[255, 153, 153], [0, 0, 0]],
        ),
    ],
)
def test_kinds_of_png(tmp_path, image, how, grey, colour):
    path = saved(tmp_path, image, **how)
    assert decode(path, GREY)[0, 0].tolist() == grey
    assert decode(path, COLOUR)[:, 0].T.tolist() == colour


def test_16_bits_are_rounded_to_8(tmp_path):
    values = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    found = decode(saved(tmp_path, Image.fromarray(values)), PictureForm(256, 256, grey=True))[0]
    np.testing.assert_array_equal(found, np.floor(values / 257 + 0.5))


def test_16_bits_take_few_bytes_a_pixel(tmp_path):
    path = saved(tmp_path, Image.fromarray(np.full((1000, 1000), 7, np.uint16)))
    tracemalloc.start()
    decode(path, SMALL)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10 * 1000 * 1000


def test_a_palette_is_not_taken_for_grey(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([0, 0, 0, 10, 250, 20] + [0] * 762)
    image.putdata([0, 1])
    assert decode(saved(tmp_path, image), COLOUR)[:, 0].T.tolist() == [[0, 0, 0], [10, 250, 20]]
    clear = saved(tmp_path, image, "clear.png", transparency=0)
    assert decode(clear, COLOUR)[:, 0].T.tolist() == [[255, 255, 255], [10, 250, 20]]


def test_cmyk_of_a_jpeg(tmp_path):
    image = Image.new("CMYK", (16, 8), (0, 255, 255, 0))
    found = decode(saved(tmp_path, image, "p.jpg", quality=100), PictureForm(2, 1))
    np.testing.assert_allclose(found[:, 0, 0], [255, 0, 0], atol=3)


def test_a_large_jpeg_is_about_the_same_as_decoded_whole(tmp_path):
    random = np.random.default_rng(1)
    image = Image.fromarray(random.integers(0, 256, (15, 20, 3), dtype=np.uint8)).resize((1200, 900))
    path = saved(tmp_path, image, "p.jpg", quality=95)
    whole = Image.open(path).convert("RGB").resize((40, 30), Image.Resampling.BILINEAR)
    found = decode(path, PictureForm(40, 30)).transpose(1, 2, 0)
    assert np.abs(found.astype(int) - np.asarray(whole)).mean() < 3


def png_of(width, height):
    """Return a PNG whose header promises more than its few bytes should be worth."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(40_000, 10), (12_000, 12_000), (30_000, 30_000), (9_000, 9_000)])
def test_bombs_are_refused_by_their_header(tmp_path, width, height):
    path = tmp_path / "p.png"
    path.write_bytes(png_of(width, height))
    with pytest.raises(PictureError, match=r"pixels"):
        decode(path, SMALL)


@pytest.mark.parametrize("kind", ["jpg", "png", "gif", "webp", "tif", "bmp"])
def test_torn_files_are_broken_pictures(tmp_path, kind):
    path = saved(tmp_path, Image.fromarray(ramp(60, 80)), f"p.{kind}")
    data = path.read_bytes()
    for length in (0, 1, 10, len(data) // 2, len(data) - len(data) // 4):
        path.write_bytes(data[:length])
        with pytest.raises(PictureError):
            decode(path, SMALL)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), kind=st.sampled_from(["jpg", "png", "gif", "tif"]))
def test_damaged_files_are_decoded_or_broken(tmp_path_factory, data, kind):
    path = saved(tmp_path_factory.mktemp("damaged"), Image.fromarray(ramp(20, 30)), f"p.{kind}")
    torn = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(torn) - 1), min_size=1, max_size=8)):
        torn[place] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(torn))
    try:
        found = decode(path, SMALL)
    except PictureError as error:
        assert str(error) and "\n" not in str(error)
    else:
        assert found.shape == (3, 3, 4)


def test_other_files(tmp_path, monkeypatch):
    path = tmp_path / "p.jpg"
    path.write_text("hello")
    with pytest.raises(PictureError, match="no picture of a known kind"):
        decode(path, SMALL)
    with pytest.raises(FileNotFoundError):
        decode(tmp_path / "none.jpg", SMALL)
    wide = saved(tmp_path, Image.fromarray(np.array([[1, 70_000]], np.int32)), "wide.tif")
    with pytest.raises(PictureError, match="32 bits"):
        decode(wide, SMALL)
    real = saved(tmp_path, Image.fromarray(np.ones((3, 4), np.float32)), "real.tif")
    with pytest.raises(PictureError, match="floating point"):
        decode(real, SMALL)
    monkeypatch.setattr(pictures, "MOST_BYTES", 10)
    with pytest.raises(PictureError, match="a file of more than"):
        decode(real, SMALL)


def test_a_folder_is_no_picture(tmp_path):
    with pytest.raises(OSError, match="directory"):
        decode(tmp_path, SMALL)
