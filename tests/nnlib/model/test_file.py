import random
from dataclasses import replace

import netCDF4
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.errors import DataError
from nnlib.inspection.contents import describe_file
from nnlib.model import network as net
from nnlib.model.attributes import Attributes
from nnlib.model.file import Model, _edge_attributes, _spec, read_model, write_model
from nnlib.model.file_attributes import network_attributes
from nnlib.spec.network import parse_network
from nnlib.spec.types import Activation, ErrorFunction, Scheme
from tests.nnlib.isolation import own_process

RAW = {
    "Name": "m",
    "Kind": "AutoEncoder",
    "ErrorFunction": "ScaledMarginalCrossEntropy",
    "ScaledMarginalCrossEntropy": {"oneTarget": 1.0, "zeroTarget": 0.0, "oneScale": 30.0},
    "Denoising": {"p": 0.2},
    "ShuffleIndices": False,
    "Layers": [
        {"Name": "In", "N": 5, "DataSet": "gl_input", "Sparse": True},
        {"N": 3, "Activation": "Tanh", "pDropout": 0.37, "WeightInit": {"Scheme": "Gaussian", "Scale": 0.5}},
        {"N": 4, "Activation": "Relu"},
        {"Name": "Out", "N": 6, "DataSet": "gl_output", "Sparse": True, "WeightInit": {"Bias": -2.5}},
    ],
}
OWNER = {"InputLayer": "Late", "SourceInputLayer": "A", "SourceOutputLayer": "Late"}
TIED = {"SharedWeights": OWNER | {"Transposed": True}}
NORMED = {"Sparse": True, "Slope": 0.3, "BatchNormalization": True, "SparsenessPenalty": {"p": 0.2, "beta": 0.5}}
WHOLE = {
    "Name": "whole",
    "ErrorFunction": "L2",
    "ScaledMarginalCrossEntropy": {"oneTarget": 0.75, "zeroTarget": 0.1, "oneScale": 3, "zeroScale": 0.3},
    "SparsenessPenalty": {"p": 0.1, "beta": 2},
    "DeltaBoost": {"one": 4, "zero": 0.7},
    "LRN": {"k": 1, "n": 3, "alpha": 0.001, "beta": 0.5},
    "Maxout": {"k": 3},
    "Decay": 0.01,
    "Layers": [
        {"Name": "A", "N": [3, 2], "DataSet": "a", "pDropout": 0.1},
        {"Name": "B", "Kind": "Input", "N": 4, "DataSet": "b", "Sparse": True},
        {"Name": "Tied", "N": 6, "Source": "Late", "Activation": "SELU", "ELUAlpha": 0.6, "SELULambda": 1.1} | TIED,
        {"Name": "Late", "N": [1, 2, 1, 2], "Source": ["A", "B"], "Skip": "B", "Activation": "LRelu"} | NORMED,
        {"Name": "Odd", "Activation": "SoftSign", "WeightInit": {"Scheme": "SELU", "Scale": 2, "Bias": 0.1}},
        {"Name": "First", "Kind": "Output", "N": 4, "Source": "B", "DataSet": "x", "WeightNorm": 1.5},
        {"Name": "Last", "N": 2, "Source": ["Tied", "First"], "DataSet": "y", "DeltaNorm": 0.9, "Activation": "Linear"},
    ],
}
RENUMBERED = {0: 3, 1: 0, 2: 4, 3: 2, 4: 6, 5: 1, 6: 5}


def model_of(raw, compat=False):
    network = net.create(parse_network(raw, "n", compat), np.random.default_rng(0))
    draw = np.random.default_rng(1)
    for _, values in network.arrays():
        values += draw.random(values.shape, np.float32) * (values != 0)  # blocked weights are filled up with zeros
    return Model(network)


@pytest.fixture
def model():
    return replace(model_of(RAW), features={0: tuple("abcde"), 3: tuple("uvwxyé")}, region="Åland", repeats=True)


@pytest.fixture
def whole():
    return replace(model_of(WHOLE, compat=True), network=replace(model_of(WHOLE, True).network, locked=frozenset({1})))


def same(ours, theirs):
    assert ours.spec == theirs.spec
    assert ours.locked == theirs.locked
    for (name, mine), (their_name, other) in zip(ours.arrays(), theirs.arrays(), strict=True):
        assert name == their_name
        np.testing.assert_array_equal(mine, other)


def test_round_trip(tmp_path, model):
    write_model(tmp_path / "model.nc", model)
    seen = read_model(tmp_path / "model.nc")
    same(model.network, seen.network)
    assert (seen.inputs, seen.outputs, seen.region) == (tuple("abcde"), tuple("uvwxyé"), "Åland")
    assert seen.repeats
    write_model(tmp_path / "again.nc", seen)
    assert (tmp_path / "again.nc").read_bytes() == (tmp_path / "model.nc").read_bytes()


def test_round_trip_of_everything_at_once(tmp_path, whole):
    write_model(tmp_path / "model.nc", whole)
    seen = read_model(tmp_path / "model.nc")
    same(whole.network, seen.network)
    assert seen.network.spec.compat
    assert (seen.inputs, seen.outputs, seen.features, seen.region, seen.repeats) == ((), (), {}, "", False)


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("scheme", Scheme)
def test_round_trip_of_every_activation_and_scheme(tmp_path, activation, scheme):
    layers = [RAW["Layers"][0], {"Activation": activation.value, "WeightInit": {"Scheme": scheme.value}}]
    model = model_of({"Layers": [*layers, RAW["Layers"][3]]})
    write_model(tmp_path / "model.nc", model)
    same(model.network, read_model(tmp_path / "model.nc").network)


@pytest.mark.parametrize("error", ErrorFunction)
def test_round_trip_of_every_error(tmp_path, error):
    model = model_of(RAW | {"ErrorFunction": error.value})
    write_model(tmp_path / "model.nc", model)
    same(model.network, read_model(tmp_path / "model.nc").network)


NUMBERS = st.integers(1, 4)


@st.composite
def networks(draw):
    """Layers of any sources before them, some with skips, weights shared with an edge of the same sizes."""
    layers = [{"Name": "L0", "N": draw(NUMBERS), "DataSet": "a", "Type": "Convolutional"}]
    edges = []
    for n in range(1, draw(st.integers(2, 7))):
        sources = draw(st.lists(st.sampled_from(range(n)), min_size=1, max_size=3, unique=True))
        layer = {"Name": f"L{n}", "N": draw(NUMBERS), "Source": [f"L{s}" for s in sources]}
        layer["Skip"] = [f"L{s}" for s in range(n) if layers[s]["N"] == layer["N"] and draw(st.booleans())]
        layer["Activation"] = draw(st.sampled_from([a.value for a in Activation]))
        for source in sources[:1]:
            pair = (layers[source]["N"], layer["N"])
            for owner_source, owner_target, sizes in edges:
                for transposed in (False, True):
                    if draw(st.booleans()) and sizes == (pair[::-1] if transposed else pair):
                        layer["SharedWeights"] = {
                            "InputLayer": f"L{source}",
                            "SourceInputLayer": owner_source,
                            "SourceOutputLayer": owner_target,
                            "Transposed": transposed,
                        }
        edges += [(f"L{s}", f"L{n}", (layers[s]["N"], layer["N"])) for s in sources[1:]]
        layers.append(layer)
    return {"ErrorFunction": "L2", "Layers": [*layers, {"N": draw(NUMBERS), "DataSet": "b"}]}


@pytest.mark.slow
@given(networks())
@settings(max_examples=40)
def test_round_trip_of_any_network(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("any") / "model.nc"
    model = model_of(raw)
    write_model(path, model)
    same(model.network, read_model(path).network)


def test_layout_is_dsstnes(tmp_path, model):
    write_model(tmp_path / "model.nc", model)
    with netCDF4.Dataset(tmp_path / "model.nc") as file:
        assert (file.layers, file.weights, file.errorFunction, file.kind) == (4, 3, 3, 1)
        assert (file.bDenoising, file.SMCE_oneScale, file.ShuffleIndices) == (1, 30, 0)
        assert (file.layer0_attributes, file.layer0_dataSet, file.layer0_Nx) == (3, "gl_input", 5)
        assert (file.layer1_activation, file.layer1_weightInit, file.layer1_attributes) == (1, 2, 0)
        assert file.layer1_pDropout == np.float32(0.37)
        assert (file.layer3_sources, file.layer3_source0, file.layer3_biasInit) == (1, "Hidden2", -2.5)
        assert (file.weight2_inputLayer, file.weight2_outputLayer) == ("Hidden2", "Out")
        assert (file.weight2_height, file.weight2_width, file.weight2_height.dtype) == (4, 6, np.uint64)
        np.testing.assert_array_equal(file["weight2_weights"][:].reshape(4, 6), model.network.matrix(2))
        np.testing.assert_array_equal(file["weight2_bias"][:], model.network.biases[2])


def test_layout_of_everything_is_dsstnes(tmp_path, whole):
    write_model(tmp_path / "model.nc", whole)
    with netCDF4.Dataset(tmp_path / "model.nc") as file:
        assert (file.bSparsenessPenalty, file.sparsenessPenalty_beta, file.deltaBoost_one) == (1, 2, 4)
        assert (file.LRN_n, file.maxout_k, file.decay) == (3, 3, np.float32(0.01))
        assert (file.LRN_n.dtype, file.layers.dtype, file.decay.dtype) == (np.int32, np.uint32, np.float32)
        assert (file.layer0_Nx, file.layer0_Ny, file.layer0_Nz, file.layer0_dimensions) == (3, 2, 1, 2)
        assert (file.layer3_Nx, file.layer3_Ny, file.layer3_Nz, file.layer3_Nw) == (1, 2, 1, 2)
        assert (file.layer3_attributes, file.layer3_activation, file.layer3_dimensions) == (5, 11, 4)
        assert (file.layer3_sources, file.layer3_source1, file.layer3_skips, file.layer3_skip0) == (2, "B", 1, "B")
        assert (file.layer3_sparsenessPenalty_p, file.layer3_RELUSlope) == (np.float32(0.2), np.float32(0.3))
        assert (file.weight0_bShared, file.weight0_bTransposed, file.weight0_sourceInputLayer) == (1, 1, "A")
        assert (file.weight0_sourceOutputLayer, "weight0_weights" in file.variables) == ("Late", False)
        assert (file.weight1_bShared, file.weight1_bLocked, file.weight0_bLocked, file.weight4_norm) == (0, 1, 1, 1.5)
        assert file.dimensions["layer3_bnDim"].size == 4
        assert {name for name in file.variables if name.startswith("layer")} == {
            f"layer3_{name}" for name in ("scaleBN", "biasBN", "runningMeanBN", "runningVarianceBN")
        }
        assert file.nnlib_compat == 1


def rewritten(path, other, attributes=lambda name: name, drop=(), values=None):
    """Copy a model file under other names of attributes and variables."""
    with netCDF4.Dataset(path) as old, netCDF4.Dataset(other, "w") as new:
        for name in old.ncattrs():
            if name not in drop:
                new.setncattr(attributes(name), (values or {}).get(name, old.getncattr(name)))
        for name, dimension in old.dimensions.items():
            new.createDimension(attributes(name), dimension.size)
        for name, variable in old.variables.items():
            kept = new.createVariable(attributes(name), variable.dtype, [attributes(d) for d in variable.dimensions])
            kept[:] = variable[:]


def test_weights_are_found_by_their_names(tmp_path, whole):
    def other(name):
        head, _, tail = name.partition("_")
        if not (head.startswith("weight") and head[6:].isdigit()):
            return name
        return f"weight{RENUMBERED[int(head[6:])]}_{tail}"

    write_model(tmp_path / "model.nc", whole)
    rewritten(tmp_path / "model.nc", tmp_path / "other.nc", other)
    same(whole.network, read_model(tmp_path / "other.nc").network)


def test_what_dsstne_may_leave_out_has_its_defaults(tmp_path, model):
    write_model(tmp_path / "model.nc", model)
    tails = ("weightInit", "weightInitScale", "biasInit", "weightNorm", "deltaNorm", "pDropout", "poolingfunction")
    drop = {f"layer{n}_{tail}" for n in range(4) for tail in tails} | {"decay", "nnlib_compat", "region"}
    rewritten(tmp_path / "model.nc", tmp_path / "other.nc", drop=drop)
    seen = read_model(tmp_path / "other.nc").network.spec
    layers = [replace(layer, dropout=0.0, init=type(layer.init)()) for layer in model.network.spec.layers]
    assert seen == replace(model.network.spec, layers=tuple(layers))


def test_switches_that_are_off(tmp_path, whole):
    write_model(tmp_path / "model.nc", whole)
    rewritten(tmp_path / "model.nc", tmp_path / "other.nc", values={"bSparsenessPenalty": np.uint32(0)})
    spec = read_model(tmp_path / "other.nc").network.spec
    assert spec.sparseness.beta == 0
    assert spec.layers[3].sparseness.beta == 0.5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda file: file.delncattr("layers"), "attribute layers is missing, legal: a whole number from 1"),
        (lambda file: file.setncattr("layers", np.uint32(2**32 - 1)), "attribute layers: 4294967295 is not legal"),
        (lambda file: file.setncattr("layers", np.uint32(7)), "attribute layer4_kind is missing"),
        (lambda file: file.setncattr("layers", "4"), "attribute layers: '4' is not legal"),
        (lambda file: file.setncattr("layers", np.float32(4)), "attribute layers: 4.0 is not legal"),
        (lambda file: file.setncattr("layers", np.array([4, 4])), "attribute layers: [4 4] is not legal"),
        (
            lambda file: file.setncattr("layer1_activation", np.uint32(4)),
            "layer1_activation: 4 is not legal, legal: 0 Si",
        ),
        (lambda file: file.setncattr("layer1_kind", np.uint32(3)), "layer1_kind: 3 is not legal, legal: 0 Input"),
        (lambda file: file.setncattr("layer1_type", np.uint32(1)), "layer1_Nx: 3 is not legal, legal: sizes of 5 x 3"),
        (lambda file: file.setncattr("layer1_name", "Out"), 'Layers[1].Name: "Out" is the name of another layer too'),
        (lambda file: file.setncattr("layer1_name", np.uint32(1)), "layer1_name: 1 is not legal, legal: a string"),
        (lambda file: file.setncattr("layer1_source0", "Out"), "feed each other in a circle"),
        (lambda file: file.setncattr("layer1_source0", "on"), 'Layers[1].Source: "on" is not the name of a layer'),
        (lambda file: file.setncattr("layer1_sources", np.uint32(9)), "attribute layer1_source1 is missing"),
        (lambda file: file.setncattr("layer1_pDropout", np.float32("nan")), "layer1_pDropout: nan is not legal"),
        (lambda file: file.setncattr("layer3_attributes", np.uint32(4)), "Layers[3].BatchNormalization: is on in a"),
        (lambda file: file.setncattr("layer2_Nx", np.uint32(5)), "variable weight1_bias: 4 numbers, legal: 5"),
        (lambda file: file.setncattr("layer2_Nx", np.uint32(2**31 - 1)), "weight1_bias: 4 numbers, legal: 2147483647"),
        (
            lambda file: file.setncattr("layer0_Nx", np.uint32(2**31 - 1)),
            "weight0_weights: 15 numbers, legal: 6442450941",
        ),
        (
            lambda file: file.setncattr("layer2_Ny", np.uint32(2)),
            "layer2_Ny: 2 is not legal, legal: a whole number from 1 to 1",
        ),
        (lambda file: file.setncattr("weight0_inputLayer", "Hidden1"), "legal: one of the sources of 'Hidden1' ('In')"),
        (lambda file: file.setncattr("weight0_outputLayer", "Hidden3"), "weight0_outputLayer: 'Hidden3' is not legal"),
        (lambda file: file.setncattr("weights", np.uint32(2)), "attribute weights: 2 is not legal, legal: 3"),
        (lambda file: file.setncattr("weight1_bShared", np.uint32(1)), "weight1_sourceInputLayer is missing"),
        (lambda file: file.renameVariable("weight1_bias", "b"), "variable weight1_bias: is missing, legal: 4 numbers"),
        (lambda file: file["weight1_bias"].__setitem__(2, np.nan), "variable weight1_bias: number 2 is nan"),
    ],
)
def test_foreign_or_damaged_models_are_named(tmp_path, model, change, words):
    write_model(tmp_path / "model.nc", model)
    with netCDF4.Dataset(tmp_path / "model.nc", "a") as file:
        change(file)
    with pytest.raises(DataError) as caught:
        read_model(tmp_path / "model.nc")
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/model.nc: ")


def test_as_many_names_as_units(tmp_path, model):
    write_model(tmp_path / "model.nc", replace(model, features={3: tuple("uvwxyz+")}))
    with pytest.raises(DataError, match=r"model.nc: variable layer3_features: 7 names, legal: 6, the number of units"):
        read_model(tmp_path / "model.nc")


def read_or_data_error(path):
    try:
        model = read_model(path)
    except DataError as error:
        assert path.name in str(error)
    else:
        assert all(np.isfinite(values).all() for _, values in model.network.arrays())


def test_nothing_of_a_declared_size_is_made_before_the_file_has_shown_it(tmp_path, model):
    write_model(tmp_path / "model.nc", model)
    with netCDF4.Dataset(tmp_path / "model.nc", "a") as file:
        file.renameVariable("weight0_weights", "w")
        file.createDimension("huge", 2**31 * 3 - 3)
        file.createVariable("weight0_weights", "f4", ("huge",))
        file.setncattr("layer0_Nx", np.uint32(2**31 - 1))
    with pytest.raises(DataError, match="variable weight0_weights declares 6442450941 values"):
        read_model(tmp_path / "model.nc")


@pytest.mark.slow
@given(st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_no_flipped_bits_and_no_cut_end_crash_the_reader(tmp_path_factory, draw):
    assert isinstance(draw, random.Random)
    folder = tmp_path_factory.mktemp("torn")  # a name is never used twice: HDF5 may keep a damaged file open
    write_model(folder / "torn.nc", model_of(WHOLE))
    damaged = bytearray((folder / "torn.nc").read_bytes())
    used = [place for place, byte in enumerate(damaged) if byte]
    for _ in range(draw.randint(1, 3)):
        damaged[draw.choice(used)] ^= 1 << draw.randrange(8)
    if draw.random() < 0.2:
        del damaged[draw.randrange(len(damaged)) :]
    (folder / "torn.nc").write_bytes(damaged)
    own_process(read_or_data_error)(folder / "torn.nc")


def test_a_models_listing(tmp_path, model, whole):
    write_model(tmp_path / "model.nc", model)
    assert describe_file(tmp_path / "model.nc").splitlines() == [
        "model 'm', ScaledMarginalCrossEntropy, region 'Åland', denoising 0.2, "
        "recommends what customers have, too (repeats)",
        "  Input In: 5 units, data set 'gl_input' with names such as 'a'",
        "  Hidden Hidden1: 3 units, Tanh, from In, dropout 0.37",
        "  Hidden Hidden2: 4 units, Relu, from Hidden1",
        "  Output Out: 6 units, Sigmoid, from Hidden2, data set 'gl_output' with names such as 'u'",
        "  weights In -> Hidden1: 5 x 3",
        "  weights Hidden1 -> Hidden2: 3 x 4",
        "  weights Hidden2 -> Out: 4 x 6",
        "  64 parameters",
    ]
    write_model(tmp_path / "whole.nc", whole)
    seen = describe_file(tmp_path / "whole.nc")
    for line in (
        "model 'whole', L2, sparseness beta 2, decay 0.01, as DSSTNE computes it",
        "  Input A: 6 units (3 x 2), data set 'a', dropout 0.1",
        "  Hidden Late: 4 units (1 x 2 x 1 x 2), LeakyRectifiedLinear, from A, B, skip from B, sparseness beta 0.5, "
        "batch normalization",
        "  weights Late -> Tied: 4 x 6, shared with A -> Late transposed, locked",
        "  weights A -> Late: 6 x 4, locked",
    ):
        assert line in seen.splitlines()


HOSTILE = st.one_of(
    st.text(max_size=4),
    st.sampled_from(["A", "B", "Tied", "Late", "Last"]),
    st.integers(0, 2**32 - 1).map(np.uint32),
    st.integers(0, 9).map(np.uint32),
    st.integers(-(2**63), 2**63 - 1).map(np.int64),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.lists(st.integers(0, 3), max_size=3).map(lambda values: np.array(values, np.int32)),
    st.lists(st.text("ab", max_size=2), min_size=2, max_size=3),
)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=300)
def test_no_attribute_of_any_value_crashes_the_reader(data):
    network = model_of(WHOLE).network
    names = [*network_attributes(network.spec), *(f"weight{n}_bShared" for n in range(7)), "weight0_sourceInputLayer"]
    values = network_attributes(network.spec) | {"weights": np.uint32(7)}
    for edge in network.spec.edges:
        values |= {f"weight{edge.number}_{key}": v for key, v in _edge_attributes(network, edge).items()}
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)):
        values[name] = data.draw(HOSTILE)
    try:
        spec, numbers = _spec(Attributes("m.nc", values))
    except DataError as error:
        assert all(line.startswith("m.nc: ") for line in str(error).splitlines())
    else:
        assert sorted(numbers) == list(range(len(spec.edges)))
