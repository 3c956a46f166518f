// Sums whose order does not depend on the machine, and what is done once a step with their results.
#include "columns.cuh"

constexpr int TILE = AHEAD * LANES;  // rows that a block reads together

// The sum over a block: halves are added until one number is left, for thread 0. Once a kernel.
__device__ __forceinline__ double over_block(double own)
{
    __shared__ double sums[THREADS];
    const int thread = threadIdx.x;
    sums[thread] = own;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) sums[thread] += sums[thread + half];
    }
    return sums[thread];
}

// The sum of numbers that blocks left, by one block, for thread 0.
__device__ __forceinline__ double sum_of_parts(const double* parts, int count)
{
    double own = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) own += parts[i];
    return over_block(own);
}

// sums[j] = scale sum_i x[i, j], added to what is there if `add`. x (b, n), `ld` floats from row to row; sums (n).
// Grid ceil(n / 32). Twin: x.sum(axis=0).
extern "C" __global__ void column_sums(const float* __restrict__ x, float* sums, int b, int n, int ld, float scale,
                                       int add)
{
    const int column = blockIdx.x * 32 + threadIdx.x % 32, lane = threadIdx.x / 32;
    const bool inside = column < n;
    const int rows = inside ? b : 0;  // all threads meet at the barriers
    float part[AHEAD], own = 0;
    for (int first = lane; first < rows; first += TILE) {
        load(part, x + column, first, rows, ld, 0);
        for (int j = 0; j < AHEAD; ++j) own += part[j];
    }
    const float total = scale * over_lanes(own);
    if (inside && lane == 0) sums[column] = add ? sums[column] + total : total;
}

// parts[block] = the sum of x^2 over the elements that the block takes, in double: a square of a float is exact, and
// none is too large. Any grid; the parts depend on its size. Twin: numpy.square(x, dtype=float64).sum().
extern "C" __global__ void sum_squares(const float* __restrict__ x, double* parts, long long count)
{
    const long long threads = (long long)gridDim.x * THREADS;
    double own = 0;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count; i += threads) {
        const double value = x[i];
        own = fma(value, value, own);  // the square is exact: one instruction less, the same bits
    }
    own = over_block(own);
    if (threadIdx.x == 0) parts[blockIdx.x] = own;
}

// status[0] = the loss of the step, the sum of `count` parts; status[1] += it; status[2] = the first step whose loss is
// not finite, 0 while there is none, and status[3] = that loss. One block.
extern "C" __global__ void finish_loss(const double* __restrict__ parts, int count, double* status,
                                       const long long* __restrict__ step)
{
    const double loss = sum_of_parts(parts, count);
    if (threadIdx.x != 0) return;
    status[0] = loss;
    status[1] += loss;
    if (isfinite(loss) || status[2] != 0) return;
    status[2] = (double)step[0];
    status[3] = loss;
}

// sums[row, k] = the sum of parts[ends[k - 1]] .. parts[ends[k] - 1] (from 0 for the first), added to what is there if `add`, in
// row (step[0] - 1) % rows of sums (rows, blocks): what each shard of a network that is cut gives. One block a sum.
extern "C" __global__ void part_sums(const double* __restrict__ parts, const long long* __restrict__ ends, double* sums,
                                     long long rows, const long long* __restrict__ step, int add)
{
    const long long first = blockIdx.x ? ends[blockIdx.x - 1] : 0;
    const double sum = sum_of_parts(parts + first, (int)(ends[blockIdx.x] - first));
    double* const out = sums + (rows > 1 ? (step[0] - 1) % rows : 0) * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0) *out = add ? *out + sum : sum;
}

// As sum_squares, of the rows first, first + apart, ... of x (rows, n): those of one shard of a sparse input.
extern "C" __global__ void sum_squares_of_rows(const float* __restrict__ x, double* parts, long long rows, int n, int first,
                                               int apart)
{
    const long long threads = (long long)gridDim.x * THREADS, count = rows > first ? (rows - first + apart - 1) / apart * n : 0;
    double own = 0;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count; i += threads) {
        const double value = x[(first + i / n * apart) * n + i % n];
        own = fma(value, value, own);  // the square is exact
    }
    own = over_block(own);
    if (threadIdx.x == 0) parts[blockIdx.x] = own;
}

// scale[0] = what makes the length of a gradient at most `limit`; the length is the root of the sum of `count` parts.
// One block. Twin: Gradients.give.
extern "C" __global__ void clip_scale(const double* __restrict__ parts, int count, double limit, float* scale)
{
    const double length = sqrt(sum_of_parts(parts, count));
    if (threadIdx.x == 0) scale[0] = length > limit ? (float)(limit / length) : 1.0f;
}

// The next step begins: step[0] += 1. One thread.
extern "C" __global__ void begin_step(long long* step)
{
    if (blockIdx.x == 0 && threadIdx.x == 0) step[0] += 1;
}
