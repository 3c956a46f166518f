// One step of the update rule for many parameters at once.
#include "broken.cuh"
#include "update.cuh"

// w, gradient and the states: `count` numbers each, those of all arrays of the network one after the other, padded to
// multiples of four and aligned to 16 bytes; states that the rule does not have are null. The first `decayed` numbers feel
// l2 and l1. scale: null, or what the gradient is multiplied by (clipping). broken (parts): see broken.cuh, by the batch's
// step `now`; array k ends before number ends[k]. Any grid.
// Twin: updates.NumpyUpdates.update, with the rules of rules.py.
extern "C" __global__ void update(float* __restrict__ w, const float* __restrict__ gradient, float* __restrict__ state0,
                                  float* __restrict__ state1, long long count, long long decayed, int rule,
                                  const float* __restrict__ paces, const long long* __restrict__ step,
                                  const float* __restrict__ hyper, const float* __restrict__ scale,
                                  const long long* __restrict__ now, const long long* __restrict__ ends, int parts,
                                  int* broken)
{
    const long long all = (long long)gridDim.x * blockDim.x * WIDE;
    const float* pace = paces + step[0] * PACE_SIZE;
    const float factor = scale ? scale[0] : 1;
    for (long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * WIDE; i < count; i += all) {
        Four g = load(gradient + i, WIDE, true);
        for (int k = 0; k < WIDE; ++k) g.at[k] *= factor;
        Piece piece = load(w, state0, state1, i, WIDE, true);
        apply(rule, piece, g, pace, hyper, i < decayed);
        store(w, state0, state1, piece, i, WIDE, true);
        if (all_finite<WIDE>(piece.w.at)) continue;
        int part = 0;
        while (part + 1 < parts && i >= ends[part]) ++part;
        mark_broken(broken ? broken + part : broken, now);
    }
}
