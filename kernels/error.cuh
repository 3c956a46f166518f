// The loss of one output unit and delta = dLoss/dz, from its sum z and its target t. Twin: nnlib/ops/losses.py, whose formulas
// these are; where that takes a difference of large numbers, log(1 + e^z) is split into max(0, z) + log(1 + e^-|z|).
// `stored`: the unit has an entry in sparse targets, or a dense target other than zero.
// NaN in z makes the loss NaN: what does not count is multiplied by 0, except by the gate of zeros, which NaN passes.
#pragma once
#include "names.cuh"
#include "batch.cuh"
#include "activation.cuh"

enum Flag {
    ALONE = 1,      // only units with an entry count (SparseIgnoreZero)
    COMPAT = 2,     // as DSSTNE does it
    LOSS_ONLY = 4,  // delta is not wanted
    DROPPED = 8,    // the output layer has dropout
    BY_VALUE = 16   // z is a: a rowwise activation was done, `activation` is LINEAR and delta is dLoss/da
};

__device__ __forceinline__ float logit(float a)
{
    const float most = 3.40282347e38f;
    return a <= 0 ? -most : a >= 1 ? most : logf(a / (1 - a));
}

// What the units of an example share; `unit` and `error` as in README.md.
struct Example {
    int kind, activation, flags;
    const float *unit, *error;
    float gate;                   // the logit of zero_target: zeros up to it do not count
    float boost_one, boost_zero;  // of delta, and of the loss but for DSSTNE
    float weight, normalizer, share;
};

__device__ __forceinline__ Example example_of(const int* batch, int weights_at, int shares_at, const float* normalizer,
                                              int kind, int activation, int flags, const float* unit,
                                              const float* error, int row)
{
    const float *weights = floats(batch, weights_at), *shares = floats(batch, shares_at);
    Example of = {kind, activation, flags, unit, error, logit(error[ZERO_TARGET]), error[BOOST_ONE], error[BOOST_ZERO],
                  weights ? weights[row] : 1.0f, 0, 0};
    if (activation == SOFTMAX) of.normalizer = normalizer[row], of.share = shares[row];
    return of;
}

struct Found { float loss, delta; };

// L1, L2, L2_HINGE and HINGE: loss and dLoss/da of output a.
__device__ __forceinline__ Found pointwise(int kind, float a, float t)
{
    if (kind == HINGE) {
        const float inside = t * a < 1 ? 1.0f : 0.0f;
        return {inside * (1 - t * a), -t * inside};
    }
    float difference = a - (kind == L2_HINGE ? fabsf(t) : t);
    if (kind == L1) return {fabsf(difference), sign(difference)};
    if (kind == L2_HINGE) {
        const bool counts = t > 0 ? !(difference > 0) : !(difference < 0);  // NaN does
        difference = counts ? difference : 0.0f;
    }
    return {difference * difference / 2, difference};
}

// The cross entropies over SIGMOID units. Twin: losses.sigmoid_error.
__device__ __forceinline__ Found sigmoid_error(const Example& of, float z, float t, bool stored)
{
    if (!stored && (of.flags & ALONE || z <= of.gate)) return {0, 0};  // mostly so with margins: no exponential
    const float e = expf(-fabsf(z)), tail = log1pf(e), a = (z > 0 ? 1.0f : e) / (1 + e);
    if (of.kind == CROSS_ENTROPY) return {(z > 0 ? (1 - t) * z : -t * z) + tail, a - t};
    if (!stored) return {((z > 0 ? z : 0.0f) + tail) * of.error[ZERO_SCALE], a * of.error[ZERO_SCALE]};
    const float value = of.kind == DATA_MARGINAL ? t : 1.0f;
    const float counts = (a < of.error[ONE_TARGET] ? 1.0f : 0.0f) * value * of.error[ONE_SCALE];
    return {((z < 0 ? -z : 0.0f) + tail) * counts, (a - 1) * counts};
}

// The cross entropies over SOFTMAX units. Twin: losses.softmax_error.
__device__ __forceinline__ Found softmax_error(const Example& of, float z, float t, bool stored)
{
    const bool gated = of.kind != CROSS_ENTROPY;
    const float log_a = z - of.normalizer, a = expf(log_a), share = of.error[ONE_SCALE] * t;
    if (stored) {
        const float counts = gated && !(a < of.error[ONE_TARGET]) ? 0.0f : 1.0f;
        return {-log_a * share * counts, (a * of.share - share) * counts};
    }
    if (of.flags & ALONE && (gated || of.flags & COMPAT)) return {-log_a * 0, 0};
    const float counts = gated ? (a > of.error[ZERO_TARGET] ? 1.0f : 0.0f) * of.error[ZERO_SCALE] : 1.0f;
    return {-log_a * 0, a * counts * of.share};
}

// The loss, times the example's weight, and delta, also times 1 / b.
__device__ __forceinline__ Found unit_error(const Example& of, float z, float t, bool stored, bool keep)
{
    Found found;
    float factor = 1;  // of delta, for what follows the error
    if (of.activation == SOFTMAX) {
        found = softmax_error(of, z, t, stored);
    } else {
        if (of.kind >= CROSS_ENTROPY) {
            factor = keep ? 1.0f : 0.0f;
            found = sigmoid_error(of, z * factor, t, stored);  // a dropped unit gives 0.5, as a sum of 0 does
        } else {
            const bool dropped = of.flags & DROPPED;
            const float active = activate(of.activation, z, of.unit);
            found = pointwise(of.kind, dropped ? drop(active, keep, of.unit) : active, t);
            if (!stored && of.flags & ALONE) found = {0, 0};
            factor = derivative(of.activation, active, of.unit);
            if (dropped) factor *= keep ? of.unit[DROP_SCALE] : 0.0f;
        }
        const float boost = stored ? of.boost_one : of.boost_zero;
        found.loss *= of.flags & COMPAT ? 1.0f : boost;
        found.delta *= boost;
    }
    found.loss *= of.weight;
    found.delta *= of.weight * factor * of.error[MEAN];
    return found;
}
