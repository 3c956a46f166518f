// The update rules of nnlib/optim/rules.py, with the same operations in the same order, so that they give NumPy's bits. The
// numbers of a step are rounded to floats before (`paces`, `hyper`: see README.md), as NumPy rounds a Python float that
// meets an array.
#pragma once
#include "four.cuh"

constexpr float FLOOR = 1e-9f, EPSILON = 1e-8f;

struct Piece { Four w, first, second; };  // four weights and the states of the rule beside them, in the rule's order

// numpy.maximum(x, FLOOR): unlike fmaxf it lets a NaN pass.
__device__ __forceinline__ float floored(float x) { return x < FLOOR ? FLOOR : x; }

__device__ __forceinline__ float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? 0.0f : x; }

__device__ __forceinline__ void sgd(float& w, float g, const float* pace) { w -= g * pace[RATE]; }

__device__ __forceinline__ void momentum(float& w, float g, float& v, const float* pace, const float* hyper)
{
    v = v * hyper[MU] - g * pace[RATE];
    w += v;
}

__device__ __forceinline__ void nesterov(float& w, float g, float& v, const float* pace, const float* hyper)
{
    const float kept = v * hyper[MU];
    v = kept - g * pace[RATE];
    w = (w - kept) + v * hyper[MU_NEXT];
}

__device__ __forceinline__ void adagrad(float& w, float g, float& v, const float* pace)
{
    v += g * g;
    w -= g / sqrtf(floored(v)) * pace[RATE];
}

__device__ __forceinline__ void rmsprop(float& w, float g, float& v, const float* pace, const float* hyper)
{
    v = v * hyper[MU] + g * g * hyper[MU_REST];
    w -= g / sqrtf(floored(v)) * pace[RATE];
}

__device__ __forceinline__ void adadelta(float& w, float g, float& s, float& v, const float* hyper)
{
    s = s * hyper[MU] + g * g * hyper[MU_REST];
    const float d = sqrtf(floored(v) / floored(s)) * g;
    w -= d;
    v = v * hyper[MU] + d * d * hyper[MU_REST];
}

__device__ __forceinline__ void adam(float& w, float g, float& m, float& s, const float* pace, const float* hyper)
{
    m = m * hyper[MU] + g * hyper[MU_REST];
    s = s * hyper[BETA] + g * g * hyper[BETA_REST];
    w -= m / (sqrtf(s * pace[CORRECTION]) + EPSILON) * pace[CORRECTED_RATE];
}

// What l2 and l1 do before the rule. Twin: the head of NumpyUpdates._apply.
__device__ __forceinline__ void force(int rule, Four& w, Four& g, const float* pace, const float* hyper)
{
    const float l2 = hyper[L2_FORCE], l1 = hyper[L1_FORCE];
    for (int k = 0; k < WIDE; ++k) {
        if (l2 != 0 && rule == ADAMW) w.at[k] -= w.at[k] * pace[RATE_L2];
        else if (l2 != 0) g.at[k] += w.at[k] * l2;
        if (l1 != 0) g.at[k] += sign(w.at[k]) * l1;
    }
}

// One step of a rule, with the numbers of that step; `decayed`: the weights feel l2 and l1. Twin: NumpyUpdates._apply.
__device__ __forceinline__ void apply(int rule, Piece& piece, Four g, const float* pace, const float* hyper, bool decayed)
{
    float *w = piece.w.at, *first = piece.first.at, *second = piece.second.at;
    if (decayed) force(rule, piece.w, g, pace, hyper);
    switch (rule) {
    case SGD:
        for (int k = 0; k < WIDE; ++k) sgd(w[k], g.at[k], pace);
        break;
    case MOMENTUM:
        for (int k = 0; k < WIDE; ++k) momentum(w[k], g.at[k], first[k], pace, hyper);
        break;
    case NESTEROV:
        for (int k = 0; k < WIDE; ++k) nesterov(w[k], g.at[k], first[k], pace, hyper);
        break;
    case ADAGRAD:
        for (int k = 0; k < WIDE; ++k) adagrad(w[k], g.at[k], first[k], pace);
        break;
    case RMSPROP:
        for (int k = 0; k < WIDE; ++k) rmsprop(w[k], g.at[k], first[k], pace, hyper);
        break;
    case ADADELTA:
        for (int k = 0; k < WIDE; ++k) adadelta(w[k], g.at[k], first[k], second[k], hyper);
        break;
    default:
        for (int k = 0; k < WIDE; ++k) adam(w[k], g.at[k], first[k], second[k], pace, hyper);
    }
}

__device__ __forceinline__ Piece load(const float* w, const float* first, const float* second, long long at, int have,
                                      bool whole)
{
    Piece piece = {};
    piece.w = load(w + at, have, whole);
    if (first) piece.first = load(first + at, have, whole);
    if (second) piece.second = load(second + at, have, whole);
    return piece;
}

__device__ __forceinline__ void store(float* w, float* first, float* second, const Piece& piece, long long at,
                                      int have, bool whole)
{
    store(w + at, piece.w, have, whole);
    if (first) store(first + at, piece.first, have, whole);
    if (second) store(second + at, piece.second, have, whole);
}
