"""What a worker may leave that no training leaves, as data: a name, what it does, and what has to be seen.

Each begins with what an honest job has brought back, result.json, scores.npy and models, and spoils it.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nnlib.contract import Recipe, sha256_of
from nnlib.model.file import read_model, write_model
from nnlib.model.network import create
from nnlib.util import netcdf
from nnlib.worker.rivals import write_recipe

Leave = Callable[[Path], None]  # of the node's folder
SECRET = "what only the access point knows"  # noqa: S105 (no password)
STEERING = "\x1b[2J\x1b]0;owned\x07\u202e<script>alert(1)</script>\r\n"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a worker does, the exit code that its job ends with, and what the journal says of it."""

    name: str
    leave: Leave
    sees: str  # in the reason, a regular expression
    status: str = "machine"
    exit_code: int = 0
    final: bool = False


@dataclass(frozen=True, slots=True)
class Late(Behaviour):
    """What comes after a trial was settled: by its first job, of this number, which has done `first`."""

    first: Leave = lambda _: None
    job: str = "11.0"
    says: str = ""  # in manager.log, a regular expression
    counts: bool = False  # in the place of what was settled, as of a trial that is run again


def say(**more: object) -> Leave:
    """Change what result.json says; a value may be a text of JSON that Python would not write."""

    def leave(place: Path) -> None:
        path = place / "result.json"
        marks = {f'"<{name}>"': str(value) for name, value in more.items() if isinstance(value, Raw)}
        said = {name: f"<{name}>" if isinstance(value, Raw) else value for name, value in more.items()}
        text = json.dumps({**json.loads(path.read_text()), **said})
        for mark, value in marks.items():
            text = text.replace(mark, value)
        path.write_text(text)

    return leave


class Raw(str):
    """JSON as it is to stand in the file."""


def write(name: str, content: bytes) -> Leave:
    """Leave a file with other bytes."""
    return lambda place: put(place / name).write_bytes(content)


def put(path: Path) -> Path:
    """Make room for something else in the place of a file."""
    path.unlink(missing_ok=True)
    return path


def link(name: str, target: str) -> Leave:
    """Leave a symbolic link; a target that is not absolute is from the run directory."""
    return lambda place: put(place / name).symlink_to(place.parents[3] / target)


def pipe(name: str) -> Leave:
    """Leave a pipe that nobody writes into."""
    return lambda place: os.mkfifo(put(place / name))


def sparse(name: str, size: int) -> Leave:
    """Leave a file that declares more than it takes."""

    def leave(place: Path) -> None:
        with put(place / name).open("wb") as file:
            file.truncate(size)

    return leave


def folder(name: str, count: int = 1, depth: int = 1) -> Leave:
    """Leave a folder with files, or folders in folders."""

    def leave(place: Path) -> None:
        inner = put(place / name)
        inner.mkdir(exist_ok=True)
        for number in range(count):
            (inner / f"{number}").touch()
        for _ in range(depth - 1):
            inner = inner / "d"
            inner.mkdir()

    return leave


def scores(content: bytes | None = None, **header: object) -> Leave:
    """Leave a scores.npy with that header, or of those bytes, and a result that vouches for it."""

    def leave(place: Path) -> None:
        path = place / "scores.npy"
        said = {"descr": "<f4", "fortran_order": False, "shape": (2, 3, 12), **header}
        text = f"{said}\n".encode()
        plain = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(4 * 2 * 3 * 12)
        path.write_bytes(plain if content is None else content)
        say(scores=sha256_of(path))(place)

    return leave


def archive(place: Path) -> None:
    """Leave an archive of NumPy's in the place of an array."""
    with (place / "scores.npy").open("wb") as file:
        np.savez(file, scores=np.zeros((2, 3, 12), np.float32))
    say(scores=sha256_of(place / "scores.npy"))(place)


def models(change: Callable[[Path], None], name: str = "model") -> Leave:
    """Leave a model that was changed, and a result that vouches for it."""

    def leave(place: Path) -> None:
        change(place / f"{name}.nc")
        say(**{name: sha256_of(place / f"{name}.nc")})(place)

    return leave


def variables(**values: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Change variables of a NetCDF file."""

    def change(path: Path) -> None:
        content = netcdf.read(path)
        found = dict(content.variables)
        for name, other in values.items():
            found[name] = replace(found[name], values=other(found[name].values))
        netcdf.write(path, netcdf.Content(content.attributes, found))

    return change


def attributes(**values: Any) -> Callable[[Path], None]:
    """Change attributes of a NetCDF file."""

    def change(path: Path) -> None:
        content = netcdf.read(path)
        netcdf.write(path, netcdf.Content({**content.attributes, **values}, content.variables))

    return change


def of(name: str) -> Callable[[Path], None]:
    """Leave a copy of another file of the node's folder, or of the region's, in its place."""
    return lambda path: put(path).write_bytes((path.parent / name).read_bytes())


def of_nan(path: Path) -> None:
    """Leave numbers that are none in all arrays of a recipe's model."""
    names = [name for name, one in netcdf.read(path).variables.items() if name.startswith("array_")]
    variables(**{name: lambda values: np.full(values.shape, np.nan) for name in names})(path)


def another_network(path: Path) -> None:
    """Leave a whole model of a network with one hidden unit more."""
    model = read_model(path)
    spec = model.network.spec
    hidden = [replace(one, units=one.units + 1) if one.name == "Hidden" else one for one in spec.layers]
    hidden = [replace(one, dimensions=(one.units,)) for one in hidden]
    network = create(replace(spec, layers=tuple(hidden)), np.random.default_rng(1))
    write_model(path, replace(model, network=network))


def another_recipe(path: Path) -> None:
    """Leave a whole model of another family."""
    write_recipe(Recipe("ease"), path.parents[2] / "data.train.nc", path)


def hard_link(place: Path) -> None:
    """Leave a second name of another trial's result."""
    put(place / "result.json").hardlink_to(place.parent / "0000" / "result.json")


def many(place: Path) -> None:
    """Leave files that nobody asked for."""
    for number in range(5000):
        (place / f"extra-{number}").touch()


def closed(place: Path) -> None:
    """Leave a result that the access point may not read."""
    (place / "result.json").chmod(0)


def several(*leaves: Leave) -> Leave:
    """Do one after the other."""

    def leave(place: Path) -> None:
        for one in leaves:
            one(place)

    return leave


NO_RESULT = r"brought no complete result\.json"
NOT_TAKEN = "nothing of it was taken"
FIGURE = "legal: a finite number"
EPOCHS = b'{"epoch": %d, "loss": 0.5, "value": 0.1, "seconds": 1, "examples": 8}\n'

BEHAVIOURS = (
    # --- result.json as a file
    Behaviour("nothing at all", write("result.json", b""), NO_RESULT),
    Behaviour("a torn result", write("result.json", b'{"version": 1, "node": "ger'), f"{NO_RESULT}.*not JSON"),
    Behaviour("17 MB of JSON", write("result.json", b"[" + b"0," * (17 << 19) + b"0]"), r"17,\d+,\d+ bytes \(legal"),
    Behaviour("a terabyte of holes", sparse("result.json", 1 << 40), r"bytes \(legal: 16,777,216"),
    Behaviour("brackets without end", write("result.json", b"[" * 1_000_000), f"{NO_RESULT}.*recursion"),
    Behaviour("objects in objects", write("result.json", b'{"a":' * 200_000), f"{NO_RESULT}.*recursion"),
    Behaviour("no UTF-8", write("result.json", b'{"version": 1, "node": "\xff\xfe"}'), f"{NO_RESULT}.*not a text"),
    Behaviour("UTF-16", write("result.json", '{"version": 1}'.encode("utf-16")), f"{NO_RESULT}.*not a text"),
    Behaviour("zero bytes", write("result.json", bytes(10_000)), f"{NO_RESULT}.*not JSON"),
    Behaviour("a list", write("result.json", b"[1, 2]"), f"{NO_RESULT}.*version 'list'"),
    # --- result.json as a text
    Behaviour("another version", say(version=2), "version 2, this nnlib reads version 1"),
    Behaviour("a version of 100 kB", say(version="v" * 100_000), "version 'vvv"),
    Behaviour("another trial's", say(node="germany_t0000"), "of the node 'germany_t0000'"),
    Behaviour("another region's", say(node="united-kingdom_t0001"), "of the node 'united-kingdom_t0001'"),
    Behaviour("a node that steers", say(node=STEERING), r"of the node '\?\[2J"),
    Behaviour("removed, says the worker", say(status="removed"), "only the manager says"),
    Behaviour("a status of its own", say(status=STEERING), r"not a result of version 1.*Status"),
    Behaviour("NaN", say(value=Raw("NaN")), FIGURE),
    Behaviour("infinity", say(metrics=Raw('{"ndcg@5": -Infinity}')), FIGURE),
    Behaviour("1e999", say(value=Raw("1e999")), FIGURE),
    Behaviour("a number with 4000 digits", say(value=Raw("9" * 4000)), FIGURE),
    Behaviour("a number with a million digits", say(value=Raw("9" * 1_000_000)), f"{NO_RESULT}.*digits"),
    Behaviour("a value that no tuner can square", say(value=1e200), r"legal: 1e\+100 at most"),
    Behaviour("a truth value", say(value=True), FIGURE),
    Behaviour("a text for a number", say(value="0.9"), FIGURE),
    Behaviour("a list for a number", say(value=[0.9]), FIGURE),
    Behaviour("negative epochs", say(epochs=-3), "epochs: seen -3"),
    Behaviour("a best epoch beyond all", say(best_epoch=10**9), "best_epoch: seen 1000000000"),
    Behaviour("a best epoch beyond the trial's", say(best_epoch=90_000), "90,000 epochs, legal: 2 at most"),
    Behaviour("half an epoch", say(best_epoch=1.5), "best_epoch: seen 1.5"),
    Behaviour("negative seconds", say(seconds=-1e9), "seconds: seen"),
    Behaviour("the seconds of a thousand years", say(seconds=3e10), "seconds: seen"),
    Behaviour("a curve of a million", say(curve=[0.1] * 1_000_000), "1,000,000 numbers, legal: 100,000"),
    Behaviour("a curve beyond the trial's", say(curve=[0.1] * 50_000), "50,000 epochs, legal: 2 at most"),
    Behaviour("a curve of texts", say(curve=["0.1"]), FIGURE),
    Behaviour("fitted in another age", say(fitted_until=10**12), "fitted_until"),
    Behaviour("metrics without end", say(metrics={f"m{n}": 0.1 for n in range(10_000)}), "10,000 names"),
    Behaviour("a metric that steers", say(metrics={STEERING: 0.1}), "the name"),
    Behaviour("a metric of 100 kB", say(metrics={"m" * 100_000: 0.1}), "the name"),
    Behaviour("numbers for a machine", say(machine={"cpu": {"a": [1]}}), "machine: seen"),
    Behaviour("half of a character", say(host=Raw('"\\ud800"')), "surrogates not allowed"),
    Behaviour("a recipe of its own", say(recipe={"family": "__import__('os')"}), "legal: the keys"),
    Behaviour("a hundred thousand members", say(recipe={"family": "a", "hyperparameters": {}, "seed": 1,
              "members": [{}] * 100_000}), "members: legal: 16"),
    Behaviour("pixels of its own", say(confusion={"of": 1, "classes": ["a"], "pictures": [1], "pairs": [],
              "examples": [{"actual": 0, "predicted": 0, "probability": 1, "width": 48, "height": 48, "channels": 3,
                            "pixels": "<svg onload=alert(1)>"}]}), "not a result"),
    Behaviour("more customers than there are", say(customers=10**6), "12 customers, result.json says 1,000,000"),
    # --- scores.npy
    Behaviour("scores of a terabyte", scores(shape=(2, 3, 10**11)), "do not take its"),
    Behaviour("scores with negative sizes", scores(shape=(-2, -3, 12)), "three dimensions"),
    Behaviour("scores as objects", scores(descr="|O"), "float32"),
    Behaviour("scores of one model", scores(shape=(1, 6, 12)), "1 models x 6 metrics"),
    Behaviour("scores with code for a header", scores(b"\x93NUMPY\x01\x00\x14\x00__import__('os').a()\n"), "damaged"),
    Behaviour("scores as an archive", archive, "no file of NumPy's"),
    Behaviour("scores as a pickle", scores(b"\x80\x04cposix\nsystem\n(S'true'\ntR."), "no file of NumPy's"),
    Behaviour("scores of another digest", write("scores.npy", b"\x93NUMPY"), "scores.npy did not come back"),
    # --- what is no plain file
    Behaviour("a link to a secret", link("result.json", "../secret"), f"as a symbolic link.*{NOT_TAKEN}"),
    Behaviour("a link to another trial", link("result.json", "regions/germany/trials/0000/result.json"), "a symbolic"),
    Behaviour("a link to itself", link("result.json", "regions/germany/trials/0001/result.json"), "symbolic link"),
    Behaviour("a link to /dev/zero", link("log.jsonl", "/dev/zero"), "symbolic link"),
    Behaviour("a link for the journal of events", link("job.log", "../secret"), "symbolic link"),
    Behaviour("a link for standard error", link("job.err", "../secret"), "symbolic link"),
    Behaviour("a hard link", hard_link, "second name of another file"),
    Behaviour("a pipe for a result", pipe("result.json"), "as a pipe"),
    Behaviour("a pipe for scores", pipe("scores.npy"), "as a pipe"),
    Behaviour("a pipe for standard error", pipe("job.err"), "as a pipe"),
    Behaviour("a pipe for events", pipe("job.log"), "as a pipe"),
    Behaviour("a pipe for the trial", pipe("trial.json"), "as a pipe"),
    Behaviour("a folder for a result", folder("result.json"), "as a folder"),
    Behaviour("a folder for a checkpoint", folder("checkpoint.nc", 10), "as a folder"),
    Behaviour("a folder of 20,000 files", folder("artifact", 20_000), "as a folder"),
    Behaviour("folders in folders", folder("artifact", depth=500), "as a folder"),
    Behaviour("5,000 files", many, r"5,\d+ files \(legal: 1,000"),
    Behaviour("a name that steers", folder("\x1b[2J<b>\n"), r"'\?\[2J<b>\?' as a folder"),
    Behaviour("a file that may not be read", closed, "Permission denied"),
    # --- logs, checkpoints and output
    Behaviour("a log without end", sparse("log.jsonl", 1 << 40), "log.jsonl of 1,099,511,627,776 bytes"),
    Behaviour("a trial of its own", write("trial.json", b'{"version": 1}'), "trial.json is not as it was given"),
    Behaviour("epochs that are none", write("log.jsonl", EPOCHS % -1 + b"\xff" * 1000), "", "ok"),
    Behaviour("a million epochs", write("log.jsonl", EPOCHS % 1 * 900_000), "", "ok"),
    Behaviour("gigabytes of output", sparse("job.out", 1 << 33), "", "ok"),
    Behaviour("output that steers", write("job.err", STEERING.encode() * 1000), "", "ok"),
    Behaviour("a checkpoint that is none", several(write("checkpoint.nc", os.urandom(1000)), write("result.json", b"")),
              "exit code 75", exit_code=75),
    Behaviour("a checkpoint of a terabyte", several(sparse("checkpoint.nc", 1 << 40), write("result.json", b"")),
              "job.max_output", exit_code=75),
    Behaviour("scores without end", sparse("scores.npy", 1 << 40), "job.max_output"),
    Behaviour("a reason that steers", say(status="diverged", reason=STEERING * 50_000), r"\?\[2J", "diverged", 3),
    Behaviour("success with a failure's code", say(), "diverged", "diverged", 3),
    Behaviour("failure with success's code", say(status="machine", reason="no GPU"), "no GPU"),
    Behaviour("a code that does not exist", say(), "exit code 250", exit_code=250),
    Behaviour("submit lines of its own", write("attempt.sub", b"universe = local\nexecutable = /bin/true\n"), "", "ok"),
    # --- the final training
    Behaviour("another model", write("model.nc", b"CDF\x01other"), "model.nc did not come back", final=True),
    Behaviour("a model without end", sparse("model.nc", 1 << 40), "job.max_output", final=True),
    Behaviour("a model that is a link", link("model.nc", "../secret"), "symbolic link", final=True),
    Behaviour("a model that is a pipe", pipe("model.nc"), "as a pipe", final=True),
    Behaviour("a model of no bytes", models(lambda path: path.write_bytes(b"")), "model.nc: .*it is empty", final=True),
    Behaviour("a model that is a text", models(lambda path: path.write_text(STEERING)), "model.nc: not", final=True),
    Behaviour("a model that is an archive", models(lambda path: path.write_bytes(b"PK\x03\x04" * 99)), "not a readable",
              final=True),
    Behaviour("half of a model", models(lambda path: os.truncate(path, path.stat().st_size // 2)), "not a readable",
              final=True),
    Behaviour("a model with bytes of chance", models(lambda path: path.write_bytes(path.read_bytes()[:64] +
              np.random.default_rng(1).bytes(9000))), "not a readable", final=True),
    Behaviour("a model of NaN", models(variables(weight0_weights=lambda w: w * np.nan)), "weight0_weights.*is nan",
              final=True),
    Behaviour("a model with weights too many", models(variables(weight0_weights=lambda w: np.append(w, w))),
              r"weight0_weights: \d+ numbers, legal", final=True),
    Behaviour("a model with biases too few", models(variables(weight1_bias=lambda b: b[1:])), "weight1_bias: 11",
              final=True),
    Behaviour("a network of its own", models(another_network), "layer1_Nx is .*as the trial's network", final=True),
    Behaviour("a network by another name", models(attributes(name="<b>mine</b>")), "name is .*legal: .tiny",
              final=True),
    Behaviour("a model that steers", models(attributes(name=STEERING)), "name: .*without control", final=True),
    Behaviour("layers without end", models(attributes(layers=np.uint32(2**32 - 1))), "layers", final=True),
    Behaviour("data for a model", models(of("../../data.train.nc")), "model.nc", final=True),
    Behaviour("a floor for a model", models(of("floor.nc")), "model.nc", final=True),
    Behaviour("a model for a floor", models(of("model.nc"), "floor"), "floor.nc: no attribute recipe", final=True),
    Behaviour("another recipe for a floor", models(another_recipe, "floor"), "floor.nc: it is of another recipe",
              final=True),
    Behaviour("a floor of NaN", models(of_nan, "floor"), "not finite", final=True),
    Behaviour("a floor that is a link", link("floor.nc", "../secret"), "symbolic link", final=True),
    Behaviour("a champion of NaN", say(compared=Raw('{"floor": {"ndcg@5": NaN}}')), FIGURE, final=True),
    Behaviour("a rival that steers", say(compared={STEERING: {"ndcg@5": 0.1}}), "the name", final=True),
)  # fmt: skip

TWO = "job 12.0 ended after job 11.0 was settled, which stays"
LATE = (
    Late("the same once more", several(), "", "ok", says=TWO),
    Late("the same of one job", several(), "", "ok", job="12.0"),
    Late("a better one, too late", say(value=0.99), "", "ok", says=TWO),
    Late("one of another trial, too late", say(node="germany_t0000"), "", "ok", says=TWO),
    Late("a link, too late", link("result.json", "../secret"), "", "ok", says=TWO),
    Late("none, too late", write("result.json", b""), "", "ok", says=TWO),
    Late("one after its job was removed", several(), "", "ok", -1002, counts=True),
    Late("one after it had diverged", several(), "too steep", "diverged", 3,
         first=say(status="diverged", reason="too steep"), says=TWO),
    Late("a champion once more", several(), "", "ok", final=True, says=TWO),
    Late("another champion, too late", write("model.nc", b"another"), "", "ok", final=True, says=TWO),
)  # fmt: skip
