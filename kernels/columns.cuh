// Blocks that go down 32 neighbouring columns, which a warp reads in one go: of 8 lanes of rows, lane r has rows r, r
// + 8, ...
#pragma once
#include "names.cuh"

constexpr int LANES = THREADS / 32;
constexpr int AHEAD = 8;  // rows of a lane that are read together: such grids are small, so that waiting counts

// Reads the rows first, first + LANES, ... of a column at `x`, `otherwise` in place of those beyond the last.
__device__ __forceinline__ void load(float* part, const float* x, long long first, long long rows, int ld,
                                     float otherwise)
{
    for (int j = 0; j < AHEAD; ++j) {
        const long long i = first + j * LANES;
        part[j] = i < rows ? x[i * ld] : otherwise;
    }
}

// The sum of what the lanes of the block's columns have, in their order, for all of them.
__device__ __forceinline__ float over_lanes(float own)
{
    __shared__ float sums[LANES][32];
    const int column = threadIdx.x % 32;
    __syncthreads();  // nobody still reads the sums before these
    sums[threadIdx.x / 32][column] = own;
    __syncthreads();
    float total = sums[0][column];
    for (int lane = 1; lane < LANES; ++lane) total += sums[lane][column];
    return total;
}
