"""Trainings that start from another model's weights: which are taken, which stay random, and what is said of it."""

import dataclasses
import json
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib import cli
from nnlib.api.network import Network as PublicNetwork
from nnlib.api.trainer import Trainer
from nnlib.contract import INIT_FILE, Role, Status, TrainSettings, result_from_json, sha256_of, trial_from_json
from nnlib.data.file import write_data
from nnlib.data.sets import Data, DataSet
from nnlib.errors import CheckpointedError, DataError, EvictedError, NnlibError
from nnlib.model import network as net
from nnlib.model.file import Model, read_model, write_model
from nnlib.model.network import NORM_ARRAYS
from nnlib.model.warm_start import apply_initial_weights
from nnlib.spec.network import parse_network
from nnlib.spec.types import FineTuning
from nnlib.worker import job, main
from tests.nnlib.samples import ITEMS, NETWORK, bits, clustered

pytestmark = pytest.mark.slow

OLD = tuple(f"item{n:02}" for n in range(12))
TIED = {"Transposed": True, "InputLayer": "H", "SourceInputLayer": "In", "SourceOutputLayer": "H"}


def model_of(names, seed, hidden=5, width=None, norm=False, extra=(), **output):
    """A drawn network of `names` in and out, every parameter different from all others."""
    width = width or len(names)
    more = {"BatchNormalization": True} if norm else {}
    raw = {
        "Layers": [
            {"Name": "In", "Kind": "Input", "N": width, "DataSet": "input", "Sparse": True},
            {"Name": "H", "Kind": "Hidden", "N": hidden, "Source": "In", "Activation": "Tanh", **more},
            *extra,
            {"Name": "Out", "Kind": "Output", "N": width, "DataSet": "output", "Source": "H"} | output,
        ]
    }
    random = np.random.default_rng(seed)
    network = net.create(parse_network(raw, "n"), random)
    for bias in network.biases:
        bias += random.random(bias.shape, np.float32)
    for norms in network.norms.values():
        for name in NORM_ARRAYS:
            getattr(norms, name)[...] = random.random(hidden, np.float32)
    last = len(raw["Layers"]) - 1
    return Model(network, {0: tuple(names), last: tuple(names)} if names else {})


def weights(model, source, target):
    """The weights (in, out) and biases of the connection of two layers."""
    edges = model.network.spec.edges
    places = model.network.spec.places
    edge = next(e for e in edges if (e.source, e.target) == (places[source], places[target]))
    matrix = model.network.matrix(edge.owner)
    return (matrix.T if edge.transposed else matrix), model.network.biases[edge.number]


def start(fresh, old):
    """Start `fresh` from `old`, neither of which changes."""
    before = bits(fresh.network), bits(old.network)
    found = apply_initial_weights(fresh, old)
    assert before == (bits(fresh.network), bits(old.network))
    assert not any(
        np.shares_memory(one, other)
        for _, one in found.network.arrays()
        for model in (fresh, old)
        for _, other in model.network.arrays()
    )
    return Model(found.network, fresh.features), found.summary


names = st.lists(st.sampled_from([f"i{n}" for n in range(9)]), min_size=1, max_size=9, unique=True).map(tuple)


@given(
    names, names, st.integers(1, 5), st.integers(1, 5), st.booleans(), st.sampled_from([{}, {"SharedWeights": TIED}])
)
def test_every_weight_is_the_models_or_as_it_was_drawn(new, old, hidden, old_hidden, norm, output):
    """Unit by unit, as plainly as it can be said."""
    fresh, model = model_of(new, 1, hidden, norm=norm, **output), model_of(old, 2, old_hidden, norm=norm)
    found, summary = start(fresh, model)
    common, same = [name for name in new if name in old], hidden == old_hidden
    for source, target in (("In", "H"), ("H", "Out")):
        inwards = target == "H"
        seen, drawn, taken = (weights(which, source, target) for which in (found, fresh, model))
        if output and not inwards:
            assert np.shares_memory(seen[0], found.network.matrix(0))
            continue
        for row in new if inwards else range(hidden):
            for column in range(hidden) if inwards else new:
                at = [new.index(x) if isinstance(x, str) else x for x in (row, column)]
                known = same and (row if inwards else column) in old
                where = [old.index(x) if isinstance(x, str) else x for x in (row, column)] if known else at
                assert seen[0][*at] == (taken if known else drawn)[0][*where]
    bias = weights(found, "H", "Out")[1]
    for n, name in enumerate(new):
        known = same and name in old
        wanted = weights(model, "H", "Out")[1][old.index(name)] if known else weights(fresh, "H", "Out")[1][n]
        assert bias[n] == wanted
    if norm:
        source = model if same and common else fresh
        for array in NORM_ARRAYS:
            assert np.array_equal(getattr(found.network.norms[1], array), getattr(source.network.norms[1], array))
    assert f"weights of {2 if same and common else 0} of 2 layers" in summary
    assert f"{len(common)} of {len(new)} units of In found by name" in summary
    assert ("random: In to H, H to Out" in summary) == (not (same and common))


def test_the_same_catalogue_gives_the_model_itself():
    model = model_of(OLD, 2, norm=True)
    found, summary = start(model_of(OLD, 1, norm=True), model)
    assert bits(found.network) == bits(model.network)
    assert (
        summary == "weights of 2 of 2 layers; 12 of 12 units of In found by name; 12 of 12 units of Out found by name"
    )


@pytest.mark.parametrize("cut", [slice(0, 9), slice(3, 12)], ids=["beginning", "end"])
def test_a_catalogue_whose_other_items_have_vanished(cut):
    model = model_of(OLD, 2)
    found, summary = start(model_of(OLD[cut], 1), model)
    assert np.array_equal(weights(found, "In", "H")[0], weights(model, "In", "H")[0][cut])
    assert np.array_equal(weights(found, "H", "Out")[0], weights(model, "H", "Out")[0][:, cut])
    assert np.array_equal(weights(found, "H", "Out")[1], weights(model, "H", "Out")[1][cut])
    assert "9 of 9 units of Out found by name" in summary


def test_blocks_of_outputs_and_tables_of_inputs(monkeypatch):
    """The layouts of wide layers, whose last block is filled up with zeros."""
    monkeypatch.setattr(net, "BLOCK", 5)
    source = {"Source": ["H", "In"]}
    new = (*OLD[::-1], "more", "other")
    model = model_of(OLD, 2, **source)
    found, _ = start(model_of(new, 1, **source), model)
    for pair in (("In", "H"), ("H", "Out"), ("In", "Out")):
        seen, wanted = weights(found, *pair)[0], weights(model, *pair)[0]
        rows = range(12) if pair[0] == "In" else range(5)
        columns = range(12) if pair[1] == "Out" else range(5)
        turned = [
            [11 - n if name in ("In", "Out") else n for n in at] for name, at in zip(pair, (rows, columns), strict=True)
        ]
        assert np.array_equal(seen[np.ix_(*turned)], wanted)
    owner = next(e for e in found.network.spec.edges if (e.source, e.target) == (0, 2))
    assert not found.network.stores[owner.number][-14:, 4:].any()  # beyond the last unit


def test_tied_and_untied_weights():
    tied, plain = model_of(OLD, 2, SharedWeights=TIED), model_of(OLD, 3)
    found, _ = start(model_of(OLD, 1), tied)
    assert np.array_equal(weights(found, "H", "Out")[0], weights(found, "In", "H")[0].T)
    found, _ = start(model_of(OLD, 1, SharedWeights=TIED), plain)
    assert np.array_equal(weights(found, "In", "H")[0], weights(plain, "In", "H")[0])
    assert np.array_equal(weights(found, "H", "Out")[1], weights(plain, "H", "Out")[1])


def test_shared_weights_whose_owner_the_model_lacks():
    """The model has the other connection that uses them, so they are taken from there."""
    extra = ({"Name": "G", "Kind": "Hidden", "N": 5, "Source": "In", "Activation": "Tanh"},)
    shared = {"Source": "H", "SharedWeights": TIED | {"SourceOutputLayer": "G"}}
    fresh, model = model_of(OLD, 1, extra=extra, **shared), model_of(OLD, 2)
    found, summary = start(fresh, model)
    assert np.array_equal(weights(found, "In", "G")[0].T, weights(model, "H", "Out")[0])
    assert summary.startswith("weights of 2 of 3 layers") and summary.endswith("random: In to G")


def test_without_names_units_are_found_by_number():
    model = model_of((), 2, width=7)
    found, summary = start(model_of((), 1, width=7), model)
    assert bits(found.network) == bits(model.network) and "7 of 7 units of In found by number" in summary
    found, summary = start(model_of(OLD, 1), model)
    assert summary.startswith("weights of 0 of 2 layers; 0 of 12 units of In found by number")
    assert bits(found.network) == bits(model_of(OLD, 1).network)


def test_units_without_a_name_are_padding():
    fresh, model = model_of(("", "b", "a", ""), 1), model_of(("a", "b", "", ""), 2)
    found, summary = start(fresh, model)
    assert "2 of 4 units of In" in summary
    assert weights(found, "In", "H")[0][0].tolist() == weights(fresh, "In", "H")[0][0].tolist()
    assert weights(found, "In", "H")[0][2].tolist() == weights(model, "In", "H")[0][0].tolist()


def test_layers_of_another_kind_or_name_are_others():
    other = {"Name": "G", "Kind": "Hidden", "N": 5, "Source": "H", "Activation": "Tanh"}
    _, summary = start(model_of(OLD, 1, extra=(other,), Source="G"), model_of(OLD, 2))
    assert summary.endswith("random: H to G, G to Out") and "weights of 1 of 3 layers" in summary
    _, summary = start(model_of(OLD, 1), model_of(OLD, 2, Name="Elsewhere"))
    assert "weights of 1 of 2 layers" in summary and "0 of 12 units of Out" in summary


def tuned(model, **tuning):
    """A network with a FineTuning of its own."""
    spec = dataclasses.replace(model.network.spec, tuning=FineTuning(**tuning))
    return dataclasses.replace(model, network=dataclasses.replace(model.network, spec=spec))


def test_layers_that_are_replaced_stay_as_they_were_drawn():
    model = model_of(OLD, 2, norm=True)
    fresh = tuned(model_of(OLD, 1, norm=True), replace=("H",), freeze=("Out",), rates=(("H", 3.0),))
    found, summary = start(fresh, model)
    for seen, drawn in zip(weights(found, "In", "H"), weights(fresh, "In", "H"), strict=True):
        assert np.array_equal(seen, drawn)
    for array in NORM_ARRAYS:
        assert np.array_equal(getattr(found.network.norms[1], array), getattr(fresh.network.norms[1], array))
    for seen, taken in zip(weights(found, "H", "Out"), weights(model, "H", "Out"), strict=True):
        assert np.array_equal(seen, taken)
    assert summary.endswith("random: In to H; frozen: Out; drawn anew: H; learning rate: 3 times at H")


def test_a_layer_that_is_replaced_may_have_another_width():
    model = model_of((), 2, width=7)
    fresh = tuned(model_of((), 1, width=7, N=4), replace=("Out",), freeze=("H",))
    found, _ = start(fresh, model)
    assert np.array_equal(weights(found, "In", "H")[0], weights(model, "In", "H")[0])
    assert np.array_equal(weights(found, "H", "Out")[0], weights(fresh, "H", "Out")[0])
    assert weights(found, "H", "Out")[0].shape == (5, 4)


@pytest.mark.parametrize(("frozen", "hidden"), [("H", 4), ("G", 5)])
def test_a_layer_that_the_model_lacks_cannot_be_frozen(frozen, hidden):
    other = {"Name": "G", "Kind": "Hidden", "N": 5, "Source": "H", "Activation": "Tanh"}
    fresh = tuned(model_of(OLD, 1, hidden, extra=(other,), Source="G"), freeze=(frozen,))
    source = {"H": "In", "G": "H"}[frozen]
    words = f'FineTuning.Freeze: "{frozen}" would stay random: .* no weights from "{source}" to "{frozen}" of this size'
    with pytest.raises(DataError, match=words):
        apply_initial_weights(fresh, model_of(OLD, 2))


# Whole trainings

PERMUTED = np.random.default_rng(5).permutation(ITEMS)


def permuted(data):
    """The same purchases in another order of the items, which keep their names."""
    place = np.argsort(PERMUTED).astype(np.int32)
    sets = [
        DataSet(
            s.name,
            dataclasses.replace(s.rows, indices=place[s.rows.indices]).sets(),
            tuple(s.features[n] for n in PERMUTED),
        )
        for s in data.sets
    ]
    return Data(tuple(sets), region=data.region)


@pytest.fixture
def begun(make_trial):
    """A function that makes a trial with the model of another job as its start."""
    first = make_trial("first", role=Role.FINAL)
    run(first)

    def make(folder, content=None, **changes):
        trial = make_trial(folder, init=INIT_FILE, **changes)
        path = trial.parent / INIT_FILE
        path.write_bytes((first.parent / "model.nc").read_bytes() if content is None else content)
        raw = json.loads(trial.read_text())
        raw["sha256"][INIT_FILE] = sha256_of(path)
        trial.write_text(json.dumps(raw))
        return trial

    return make


def run(trial_file, **arguments):
    (trial_file.parent / "log.jsonl").touch()
    return job.run(trial_from_json(trial_file.read_text()), trial_file.parent, **arguments)


def test_a_job_begins_where_the_other_ended(begun, make_trial, capsys):
    settings = TrainSettings(epochs=1, batch=64, learning_rate=1e-6)
    cold, warm = run(make_trial("cold", train=settings)), run(begun("warm", train=settings))
    assert warm.init.startswith("weights of 2 of 2 layers; 40 of 40 units of Input0 found by name")
    assert f"starts from init.nc: {warm.init}" in capsys.readouterr().err
    assert cold.init == "" and warm.value > 0.5 > cold.value


def test_a_job_on_another_order_of_the_items(begun):
    settings = TrainSettings(epochs=1, batch=64, learning_rate=1e-6)
    plain, other = run(begun("plain", train=settings)), begun("other", train=settings)
    for name, data in (("train.nc", clustered(64, 1, 9)), ("held.nc", clustered(32, 2, 6))):
        write_data(other.parent / name, permuted(data))
    found = run(other)
    assert found.init == plain.init
    assert found.metrics == pytest.approx(plain.metrics, rel=1e-4)


def test_a_model_of_nothing_that_is_here_changes_nothing(begun, make_trial):
    trial = begun("warm", hyperparameters={"hidden": 7, "denoising": 0.2})
    found = run(trial)
    cold = run(make_trial("cold", hyperparameters={"hidden": 7, "denoising": 0.2}))
    assert "weights of 0 of 2 layers" in found.init and "random: Input0 to Hidden1" in found.init
    assert dataclasses.replace(found, init="") == cold


class Interrupted:
    """A stop that is asked for after some batches."""

    def __init__(self, batches):
        self.left, self.deferred = batches, False

    @property
    def requested(self):
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
def test_interrupted_and_resumed_bit_for_bit(begun, optimizer):
    settings = TrainSettings(epochs=4, batch=16, learning_rate=0.01, optimizer=optimizer)
    whole, parts = (begun(name, role=Role.FINAL, train=settings) for name in ("whole", "parts"))
    wanted = run(whole)
    for batches in (3, 0, 6):
        with pytest.raises(EvictedError):
            run(parts, stop=Interrupted(batches))
    found = run(parts)
    assert found == wanted
    assert (parts.parent / "model.nc").read_bytes() == (whole.parent / "model.nc").read_bytes()


def test_the_checkpoint_of_another_start_is_passed_over(begun, make_trial, capsys):
    settings = {"role": Role.FINAL, "train": TrainSettings(epochs=3, batch=16)}
    trial, other = begun("one", **settings), begun("other", **settings)
    with pytest.raises(CheckpointedError):
        run(trial, every=0)
    model = read_model(other.parent / INIT_FILE)
    model.network.biases[0][0] += 1
    write_model(other.parent / INIT_FILE, model)
    raw = json.loads(other.read_text())
    raw["sha256"][INIT_FILE] = sha256_of(other.parent / INIT_FILE)
    other.write_text(json.dumps(raw))
    (other.parent / "checkpoint.nc").write_bytes((trial.parent / "checkpoint.nc").read_bytes())
    run(other)
    assert "checkpoint not used: checkpoint.nc: of another training" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"), [(b"torn", "not a readable NetCDF file"), (None, "init.nc: no such file")]
)
def test_a_broken_start_is_bad_input(begun, content, words):
    trial = begun("job", b"torn")
    if content is None:
        (trial.parent / INIT_FILE).unlink()
        raw = json.loads(trial.read_text())
        del raw["sha256"][INIT_FILE]
        trial.write_text(json.dumps(raw))
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert main.train(trial) == 4
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    result = result_from_json((trial.parent / "result.json").read_text())
    assert result.status is Status.BAD_INPUT and words in result.reason


def test_rows_that_no_batch_touches_keep_their_weights(begun):
    """Updates of rows that are not touched stay lazy, and are nothing without momentum or decay."""
    data = clustered(64, 1, 9)
    sets = [dataclasses.replace(s, rows=s.rows.keep(s.rows.indices != 3)) for s in data.sets[:1]]
    trial = begun("job", role=Role.FINAL, train=TrainSettings(epochs=2, batch=16, optimizer="sgd"))
    write_data(trial.parent / "train.nc", dataclasses.replace(data, sets=(*sets, data.sets[1])))
    raw = json.loads(trial.read_text())
    raw["sha256"] = {}
    trial.write_text(json.dumps(raw))
    run(trial)
    before, after = (read_model(trial.parent / name).network for name in (INIT_FILE, "model.nc"))
    changed = (before.matrix(0) != after.matrix(0)).any(axis=1)
    assert not changed[3] and changed[:3].all()


def test_from_python(tmp_path, capsys):
    data = {s.name: s for s in clustered(64, 1, 9).sets}
    other = {s.name: s for s in permuted(clustered(64, 1, 9)).sets}
    network = PublicNetwork.from_json(NETWORK, {"hidden": 16, "denoising": 0.2})
    trained = Trainer(network, epochs=5, batch=16, learning_rate=0.01).fit(data)
    trained.save(tmp_path / "model.nc")
    nothing = {"epochs": 1, "batch": 64, "optimizer": "sgd", "learning_rate": 1e-30}
    found = [
        (trainer := Trainer(network, **nothing, progress=True)).fit(other, init=init)
        for init in (trained, tmp_path / "model.nc")
    ]
    assert trainer.start.startswith("weights of 2 of 2 layers; 40 of 40 units of Input0 found by name")
    assert f"starts from a model: {trainer.start}" in capsys.readouterr().err
    for one in found:
        assert np.array_equal(one.weights("Input0", "Hidden1"), trained.weights("Input0", "Hidden1")[PERMUTED])
        assert np.array_equal(one.weights("Hidden1", "Output2"), trained.weights("Hidden1", "Output2")[:, PERMUTED])
    trainer.fit(other)
    assert trainer.start == ""
    for wrong, message in (
        (5, "init: int is not legal, legal: a Network or a path"),
        (network, "the network has no weights yet"),
    ):
        with pytest.raises(NnlibError, match=message):
            trainer.fit(data, init=wrong)
    with pytest.raises(NnlibError, match="init: the network has weights already"):
        Trainer(trained).fit(data, init=trained)


def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "old.nc", clustered(64, 1, 9))
    write_data(tmp_path / "new.nc", permuted(clustered(64, 1, 9)))
    (tmp_path / "network.json").write_text(json.dumps(NETWORK))
    settings = ["--set", "hidden=16", "--set", "denoising=0.2", "--batch", "64", "--epochs", "1", "--threads", "1"]
    assert cli.main(["train", "network.json", "old.nc", "--out", "old-model.nc", *settings]) == 0
    begin = ["train", "network.json", "new.nc", "--init", "old-model.nc", *settings]
    assert cli.main([*begin, "--out", "new-model.nc", "--optimizer", "sgd", "--learning-rate", "1e-30"]) == 0
    assert "starts from old-model.nc: weights of 2 of 2 layers; 40 of 40 units" in capsys.readouterr().err
    old, new = (read_model(tmp_path / f"{which}-model.nc").network for which in ("old", "new"))
    assert np.array_equal(new.matrix(0), old.matrix(0)[PERMUTED])
    assert cli.main([*begin, "--out", "old-model.nc"]) == 4
    (tmp_path / "old-model.nc").write_bytes(b"torn")
    assert cli.main([*begin, "--out", "new-model.nc"]) == 4
    assert "initial weights: old-model.nc: not a readable NetCDF file" in capsys.readouterr().err


def test_a_head_on_a_trained_body(tmp_path, monkeypatch, capsys):
    """The body stays as it was to the bit; the head is drawn anew and learns."""
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "a.nc", clustered(64, 1, 9))
    write_data(tmp_path / "b.nc", clustered(64, 2, 9))
    (tmp_path / "body.json").write_text(json.dumps(NETWORK))
    tuning = {"Freeze": ["Hidden1"], "Replace": ["Output2"], "Rates": {"Output2": "$head"}}
    (tmp_path / "head.json").write_text(json.dumps(NETWORK | {"FineTuning": tuning}))
    settings = ["--set", "hidden=16", "--set", "denoising=0.2", "--batch", "64", "--epochs", "2", "--threads", "1"]
    assert cli.main(["train", "body.json", "a.nc", "--out", "a-model.nc", *settings]) == 0
    head = ["train", "head.json", "b.nc", *settings, "--set", "head=2", "--out", "b-model.nc"]
    assert cli.main([*head, "--init", "a-model.nc"]) == 0
    assert (
        "random: Hidden1 to Output2; frozen: Hidden1; drawn anew: Output2; learning rate: 2 times at Output2"
        in capsys.readouterr().err
    )
    old, new = (read_model(tmp_path / f"{which}-model.nc").network for which in ("a", "b"))
    assert np.array_equal(new.matrix(0), old.matrix(0)) and np.array_equal(new.biases[0], old.biases[0])
    assert not np.isclose(new.matrix(1), old.matrix(1)).any() and not new.locked
    assert cli.main(head) == 4
    words = (
        'FineTuning.Freeze: "Hidden1": the training starts from random weights; legal: a model to start from (--init'
    )
    assert words in capsys.readouterr().err


def test_a_job_that_starts_from_random_weights_trains_all_layers(make_trial, begun):
    tuning = {"FineTuning": {"Freeze": ["Hidden1"], "Replace": ["Output2"]}}
    plain, same = (run(make_trial(name, network=raw)) for name, raw in (("a", NETWORK), ("b", NETWORK | tuning)))
    assert plain == same
    assert run(begun("c", network=NETWORK | tuning)).init.endswith("frozen: Hidden1; drawn anew: Output2")
