// The numbers by which nnlib calls activations, error functions and update rules: the order of the enums in
// nnlib/spec/types.py and of the table in nnlib/optim/rules.py.
#pragma once

constexpr int THREADS = 256;  // of a block, unless a kernel's head says otherwise

enum Activation {
    SIGMOID, TANH, RELU, LINEAR, LEAKY_RELU, ELU, SELU, SOFTMAX, SOFTPLUS, SOFTSIGN, RELU_MAX, LINEAR_MAX,
    RELU6
};
enum ErrorFunction { L1, L2, L2_HINGE, HINGE, CROSS_ENTROPY, MARGINAL, DATA_MARGINAL };
enum Rule { SGD, MOMENTUM, NESTEROV, ADAGRAD, RMSPROP, ADADELTA, ADAM, ADAMW };

// Where the constants stand in `unit`, `error`, `hyper` and in a row of `paces`.
enum Unit { SLOPE, ALPHA, LAMBDA, DROP_SCALE, DROP_SHIFT, DROP_VALUE, DROPOUT, UNIT_SIZE = 8 };
enum ErrorConstant {
    ONE_TARGET, ZERO_TARGET, ONE_SCALE, ZERO_SCALE, BOOST_ONE, BOOST_ZERO, MEAN, ERROR_SIZE = 8
};
enum Hyper { MU, MU_REST, MU_NEXT, BETA, BETA_REST, L2_FORCE, L1_FORCE, HYPER_SIZE = 8 };
enum Pace { RATE, CORRECTED_RATE, CORRECTION, RATE_L2, PACE_SIZE = 4 };
