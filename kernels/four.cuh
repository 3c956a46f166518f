// Four numbers next to each other in a row: what a thread works on, in one access of 16 bytes where the memory allows it.
#pragma once
#include "names.cuh"

constexpr int WARP = 32;
constexpr int WIDE = 4;

struct Four { float at[WIDE]; };

__device__ __forceinline__ bool aligned(const void* x) { return (reinterpret_cast<size_t>(x) & 15) == 0; }

// `have` of the four are in the row, the others are zero; `whole`: all four are or none, and they are aligned.
__device__ __forceinline__ Four load(const float* x, int have, bool whole)
{
    Four four = {};
    if (whole) {
        if (have <= 0) return four;
        const float4 v = *reinterpret_cast<const float4*>(x);
        four.at[0] = v.x, four.at[1] = v.y, four.at[2] = v.z, four.at[3] = v.w;
    } else {
        for (int k = 0; k < WIDE; ++k)
            if (k < have) four.at[k] = x[k];
    }
    return four;
}

__device__ __forceinline__ void store(float* x, const Four& four, int have, bool whole)
{
    if (whole) {
        if (have > 0) *reinterpret_cast<float4*>(x) = make_float4(four.at[0], four.at[1], four.at[2], four.at[3]);
    } else {
        for (int k = 0; k < WIDE; ++k)
            if (k < have) x[k] = four.at[k];
    }
}
