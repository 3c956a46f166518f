// Steps with a gradient of zero that rows of a sparse input's weights missed, as no batch touched them: with the same
// numbers in the same order, so that a row ends as if every step had been done at once. What a step would not change is
// left out. Twins: updates.NumpyUpdates._catch_up and, for when weights have come to rest, nnlib/compiled/replay.py.
#pragma once
#include "update.cuh"

constexpr int PATIENCE = 8;              // steps between two looks whether a replay still moves anything
constexpr int LOOK = 16;                 // multiplications between two looks
constexpr float CLOSE = 0.999f;          // so far below one a quotient of rounded numbers is below one for sure
constexpr float LOST = 1e8f * 0x1p-66f;  // 2^60 times the least normal number, divided by EPSILON

__device__ __forceinline__ bool zero(const Four& x)
{
    return x.at[0] == 0 && x.at[1] == 0 && x.at[2] == 0 && x.at[3] == 0;
}

// Multiplies by a factor so many times, or until that changes nothing any more: subnormal numbers are rounded up again.
__device__ __forceinline__ void shrink(Four& x, float factor, int times)
{
    for (; times >= LOOK; times -= LOOK) {
        for (int i = 0; i < LOOK; ++i)
            for (int k = 0; k < WIDE; ++k) x.at[k] *= factor;
        bool same = true;
        for (int k = 0; k < WIDE; ++k) same = same && x.at[k] * factor == x.at[k];
        if (same) return;
    }
    for (; times > 0; --times)
        for (int k = 0; k < WIDE; ++k) x.at[k] *= factor;
}

// Momentum and Nesterov: whether a velocity that only shrinks will never move a weight again.
__device__ __forceinline__ bool out_of_reach(const Piece& piece, const float* hyper)
{
    bool rests = true;
    for (int k = 0; k < WIDE; ++k) {
        const float w = piece.w.at[k], reach = hyper[MU_NEXT] * (hyper[MU] * piece.first.at[k]);
        rests = rests && w + reach == w && w - reach == w;
    }
    return rests;
}

// Adam: whether weights that the last step did not move will not move in later ones. Moves get smaller when the rate does
// not grow (it falls for good once it falls) and m shrinks faster than the root of the corrected s. A subnormal m may stop
// shrinking, but is lost beside w then.
__device__ __forceinline__ bool unmoved(const Piece& piece, const Four& before, const float* pace, const float* hyper)
{
    const float *next = pace + PACE_SIZE, least = pace[CORRECTED_RATE] * LOST;
    bool rests = next[RATE] <= pace[RATE]
        && hyper[MU] * hyper[MU] * pace[CORRECTION] <= CLOSE * hyper[BETA] * next[CORRECTION];
    for (int k = 0; k < WIDE; ++k) {
        const float w = piece.w.at[k];
        rests = rests && w == before.at[k] && (piece.first.at[k] == 0 || fabsf(w) >= least);
    }
    return rests;
}

// Does the steps from `t` up to and with `upto`.
__device__ __forceinline__ void replay(int rule, Piece& piece, int t, int upto, const float* paces, const float* hyper)
{
    const bool forced = hyper[L2_FORCE] != 0 || hyper[L1_FORCE] != 0;
    if (!forced && (rule == SGD || rule == ADAGRAD || (zero(piece.first) && zero(piece.second)))) return;
    bool resting = !forced && (rule == RMSPROP || rule == ADADELTA);  // without forces these only shrink their states
    for (; t <= upto && !resting; ++t) {
        const float* pace = paces + (long long)t * PACE_SIZE;
        const Four before = piece.w, nothing = {};
        apply(rule, piece, nothing, pace, hyper, forced);
        if (!forced && t % PATIENCE == 0 && t < upto)
            resting = rule < ADAM ? out_of_reach(piece, hyper) : unmoved(piece, before, pace, hyper);
    }
    if (t > upto) return;
    shrink(piece.first, hyper[MU], upto + 1 - t);
    shrink(piece.second, hyper[rule < ADAM ? MU : BETA], upto + 1 - t);
    for (int k = 0; k < WIDE && rule >= ADAM; ++k) piece.first.at[k] += 0.0f;  // a step of Adam makes -0 to +0
}
