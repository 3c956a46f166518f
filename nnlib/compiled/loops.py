"""Compiled loops for what NumPy does in several passes or not at all with SIMD. Import this only where Numba is.

Each runs on one thread without the interpreter's lock, takes float32 and float64, needs row-contiguous arrays, and
gives the same bits every time on one kind of processor. NumPy does the same where Numba is missing: see the twin that
each loop, or its module, names.
"""

from nnlib.compiled import bf16, gemm
from nnlib.compiled.bf16 import to_bf16
from nnlib.compiled.convolution import BRANCHES, convolve, convolve_as_it_is, correlate, correlate_across
from nnlib.compiled.depthwise import correlate_maps, sweep_maps
from nnlib.compiled.laying import pack, put_weights
from nnlib.compiled.maps import (
    max_pool,
    max_pool_gradient,
    measure_maps,
    normalize_maps,
    normalize_maps_back,
    sum_maps_back,
)
from nnlib.compiled.output import sigmoid_error, sigmoid_error_gated
from nnlib.compiled.pictures import change_pictures
from nnlib.compiled.replay import (
    replay_adadelta,
    replay_adagrad,
    replay_adam,
    replay_adamw,
    replay_momentum,
    replay_nesterov,
    replay_rmsprop,
    replay_sgd,
)
from nnlib.compiled.rules import adadelta, adagrad, adam, adamw, momentum, nesterov, rmsprop, sgd, take_back
from nnlib.compiled.sparse import (
    gated_below,
    gated_gradient,
    gather,
    gather_shards,
    input_gradient,
    multiply_sparse,
    to_columns,
    transpose,
)
from nnlib.compiled.tiles import ACROSS, ALONE, DOTS, FEW, ORDER, ORDER_ALONE, ROWS, cut
from nnlib.compiled.top import top
from nnlib.compiled.vectors import LANES, MASKED
