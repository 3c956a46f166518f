"""Hostile NetCDF files, as data and as models: what a header may say, and what HDF5 may hold."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import netCDF4
import numpy as np

from tests.hostile.inputs import Input, Write, content, link, pipe, several, sparse
from tests.nnlib.data.test_file_kinds import make
from tests.nnlib.data.test_file_kinds import sparse as lists
from tests.workflows.conftest import NETWORK, write_study

LOOK = "nnlib inspect d.nc"
T = "nnlib train n.json d.nc --epochs 1 --out m.nc"
P = "nnlib predict model.nc data/germany.test.nc"
R = "nnlib inspect model.nc"


def prepare(place: Path) -> None:
    """Write the honest study, a network without hyperparameters, and a model of it."""
    from nnlib.cli import main

    write_study(place)
    network = json.loads(json.dumps(NETWORK).replace('"$hidden"', "4"))
    (place / "n.json").write_text(json.dumps(network))
    (place / "d.nc").write_bytes((place / "data/germany.train.nc").read_bytes())
    assert (
        main(
            [
                "train",
                str(place / "n.json"),
                str(place / "d.nc"),
                "--epochs",
                "1",
                "--out",
                str(place / "model.nc"),
                "-q",
            ]
        )
        == 0
    )


def of_three(number: int, size: int) -> bytes:
    """Return a file of netCDF 3 (1: 32-bit, 2: 64-bit offsets, 5: 64-bit data) with a dimension of that size."""
    count = ">q" if number == 5 else ">i"

    def whole(value: int) -> bytes:
        return struct.pack(count, value)

    def name(text: str) -> bytes:
        return whole(len(text)) + text.encode().ljust((len(text) + 3) // 4 * 4, b"\0")

    head = b"CDF" + bytes([number]) + whole(0)
    dims = struct.pack(">i", 10) + whole(1) + name("n") + whole(size)
    none = struct.pack(">i", 0) + whole(0)
    offset = struct.pack(">i" if number == 1 else ">q", 200)
    of = struct.pack(">i", 11) + whole(1) + name("sparseIndex0") + whole(1) + whole(0) + none
    return head + dims + none + of + struct.pack(">i", 4) + whole(size if number == 5 else 4) + offset + bytes(64)


def odd(write) -> Write:
    """Write d.nc by netCDF4, which is given the open file."""

    def leave(place: Path) -> None:
        (place / "d.nc").unlink()
        with netCDF4.Dataset(place / "d.nc", "w") as file:
            write(file)

    return leave


def given(attributes=None, variables=None, **more) -> Write:
    """Write d.nc as another program would."""

    def leave(place: Path) -> None:
        (place / "d.nc").unlink()
        make(
            place / "d.nc",
            {"dataType0": 4, "width0": 3, **(attributes or {})},
            variables or lists(values=[1, 2, 3]),
            **more,
        )

    return leave


def bomb(file: netCDF4.Dataset) -> None:
    """Declare 2^40 values of a data set that takes a few bytes, as its chunks are packed zeros."""
    for name, value in {"datasets": 1, "attributes0": 3, "dimensions0": 1, "width0": 9, "dataType0": 0}.items():
        file.setncattr(name, np.uint32(value))
    file.name0 = "input"
    file.createDimension("huge", 1 << 28)
    file.createDimension("examplesDim0", 1)
    file.createVariable("sparseStart0", "u8", ("examplesDim0",))[:] = 0
    file.createVariable("sparseEnd0", "u8", ("examplesDim0",))[:] = 1 << 28
    values = file.createVariable("sparseIndex0", "u4", ("huge",), compression="zlib", chunksizes=(1 << 26,))
    values[: 1 << 26] = np.zeros(1 << 26, np.uint32)


def groups(file: netCDF4.Dataset) -> None:
    for number in range(300):
        file = file.createGroup(f"g{number}")


def attributes(file: netCDF4.Dataset) -> None:
    for number in range(20_000):
        file.setncattr(f"a{number}", number)


def variables(file: netCDF4.Dataset) -> None:
    file.createDimension("one", 1)
    for number in range(5000):
        file.createVariable(f"v{number}", "f4", ("one",))


def long_text(file: netCDF4.Dataset) -> None:
    file.datasets = np.uint32(1)
    file.name0 = "x" * 1_000_000


def compound(file: netCDF4.Dataset) -> None:
    file.createDimension("n", 2)
    kind = file.createCompoundType(np.dtype([("a", "f4"), ("b", "i4")]), "pair")
    file.createVariable("sparseIndex0", kind, ("n",))
    file.datasets = np.uint32(1)


def soft_link(place: Path) -> None:
    """Put a link to another file of HDF5 into d.nc, where h5py is there; else a damaged one."""
    target = place / "d.nc"
    raw = bytearray(target.read_bytes())
    found = raw.find(b"sparseIndex0")
    raw[found : found + 12] = b"../../../../"
    target.write_bytes(raw)


def cut(name: str, keep: float) -> Write:
    """Cut a file off."""

    def leave(place: Path) -> None:
        raw = (place / name).read_bytes()
        (place / name).write_bytes(raw[: int(len(raw) * keep)])

    return leave


def altered(name: str, change) -> Write:
    """Open an honest file and change it."""

    def leave(place: Path) -> None:
        with netCDF4.Dataset(place / name, "a") as file:
            change(file)

    return leave


def flipped(name: str, every: int) -> Write:
    def leave(place: Path) -> None:
        raw = bytearray((place / name).read_bytes())
        for at in range(every, len(raw), every):
            raw[at] ^= 0x55
        (place / name).write_bytes(raw)

    return leave


def nan_weights(file: netCDF4.Dataset) -> None:
    for one in file.variables.values():
        if one.dtype.kind == "f":
            one[:] = np.nan


DATA = (
    Input("data of nothing", content("d.nc", b""), LOOK, "d.nc", 4),
    Input("data of text", content("d.nc", b"hello" * 1000), LOOK, "d.nc", 4),
    Input("a head of HDF5 alone", content("d.nc", b"\x89HDF\r\n\x1a\n"), LOOK, "d.nc", 4),
    Input("HDF5 of noise", content("d.nc", b"\x89HDF\r\n\x1a\n" + os.urandom(100_000)), LOOK, "d.nc", 4),
    Input("a head of netCDF 3 alone", content("d.nc", b"CDF\x01"), LOOK, "d.nc", 4),
    Input("netCDF 3 with 2^31 values", content("d.nc", of_three(1, 2**31 - 1)), LOOK, "d.nc", 4),
    Input("netCDF 3 with fewer than none", content("d.nc", of_three(2, -5)), LOOK, "d.nc", 4),
    Input("netCDF 3 with 2^62 values", content("d.nc", of_three(5, 1 << 62)), LOOK, "d.nc", 4),
    Input("a terabyte of data's holes", sparse("d.nc", 1 << 40, b"\x89HDF\r\n\x1a\n"), LOOK, "d.nc", 4),
    Input("data that are a device", link("d.nc", "/dev/zero"), LOOK, "d.nc", 4),
    Input("data that are a pipe", pipe("d.nc"), LOOK, "d.nc", 4),
    Input("data that are a link to itself", link("d.nc", "d.nc"), LOOK, "d.nc", 4),
    Input("data cut in the middle", cut("d.nc", 0.5), T, "d.nc", 4),
    Input("data cut at the end", cut("d.nc", 0.97), T, "d.nc", 4),
    Input("data of flipped bits", flipped("d.nc", 97), LOOK, "d.nc", 4),
    Input("a bomb of zeros", odd(bomb), LOOK, "d.nc", 4),
    Input("groups in groups", odd(groups), LOOK, "d.nc", 4),
    Input("20,000 attributes", odd(attributes), LOOK, "d.nc", 4),
    Input("5,000 variables", odd(variables), LOOK, "d.nc", 4),
    Input("a name of a megabyte", odd(long_text), LOOK, "d.nc", 4),
    Input("pairs for numbers", odd(compound), LOOK, "d.nc", 4),
    Input("a link out of the file", soft_link, LOOK, "d.nc", 4),
    Input("4 billion data sets", given({"datasets": 2**32 - 1}), LOOK, "d.nc", 4),
    Input("a data set that steers", given({"name0": "\x1b[2Jx"}), LOOK, r"\\x1b", 0),
    Input("a width beyond all", given({"width0": 2**32 - 1}), LOOK, "d.nc", 4),
    Input(
        "an image beyond all",
        given({"dimensions0": 3, "width0": 2**30, "height0": 2**30, "length0": 2**30}),
        LOOK,
        "d.nc",
        4,
    ),
    Input("a type that is not", given({"dataType0": 99}), LOOK, "d.nc", 4),
    Input("a text for a width", given({"width0": "nine"}), LOOK, "d.nc", 4),
    Input(
        "lists that run backwards", given(variables=lists(start=(3, 0), end=(0, 1), values=[1, 2, 3])), LOOK, "d.nc", 4
    ),
    Input("lists beyond the values", given(variables=lists(end=(2, 2**31), values=[1, 2, 3])), LOOK, "d.nc", 4),
    Input("an item beyond the width", given(variables=lists(units=(2, 0, 2**31), values=[1, 2, 3])), LOOK, "d.nc", 4),
    Input("values of NaN", given(variables=lists(values=[1, float("nan"), 3])), T, "d.nc", 4),
    Input("values of texts", given({"attributes0": 0}, {"data0": (str, ["a"] * 3)}), LOOK, "d.nc", 4),
    Input("data without targets", given(), T, "d.nc", 4),
)
MODELS = (
    Input("data for a model", content("model.nc", b"\x89HDF\r\n\x1a\n"), P, "model.nc", 4),
    Input("a model cut off", cut("model.nc", 0.6), P, "model.nc", 4),
    Input("a model of flipped bits", flipped("model.nc", 211), P, "model.nc", 4),
    Input("a model of NaN", altered("model.nc", nan_weights), P, "model.nc", (3, 4)),
    Input(
        "a model of code", altered("model.nc", lambda file: file.setncattr("name", "$(touch owned)")), R, ".", (0, 4)
    ),
    Input(
        "a model of a million layers",
        altered("model.nc", lambda file: file.setncattr("layers", np.uint32(10**6))),
        R,
        "model.nc",
        4,
    ),
    Input(
        "a model of no layers",
        altered("model.nc", lambda file: file.setncattr("layers", np.uint32(0))),
        R,
        "model.nc",
        4,
    ),
    Input(
        "a layer beyond memory",
        altered("model.nc", lambda file: file.setncattr("layer1_Nx", np.uint32(2**32 - 1))),
        R,
        "model.nc",
        4,
    ),
    Input(
        "a layer of another kind",
        altered("model.nc", lambda file: file.setncattr("layer1_kind", np.uint32(99))),
        R,
        "model.nc",
        4,
    ),
    Input(
        "a layer that steers",
        altered("model.nc", lambda file: file.setncattr("layer1_name", "\x1b[2J")),
        R,
        ".",
        (0, 4),
    ),
    Input(
        "a model without weights",
        altered("model.nc", lambda file: file.renameVariable("weight0_bias", "weight9_bias")),
        P,
        "model.nc",
        4,
    ),
    Input("more than there are", several(), f"{P} -k 1000000000", "7,", 0),
    Input("fewer than one", several(), f"{P} -k -5", "k", 2),
    Input("a format of code", several(), f"{P} --score-format %s%n%n", "format", (2, 4)),
    Input("a score of a terabyte", several(), f"{P} --score-format %999999999.3f", "format", (2, 4)),
)
DATA_FILES = (*DATA, *MODELS)
