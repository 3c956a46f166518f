// Activations of a unit that depend on its whole layer. z (b, n), `ld` floats from row to row; one block a row, grid b. Each
// thread goes through every 256th unit, then its warp adds up by halves, then the warps in turn.
// Twins: nnlib/ops/activations.py, losses.softmax_normalizer.
#include "names.cuh"
#include "activation.cuh"
#include "tree.cuh"

constexpr int WARPS = THREADS / 32;
constexpr float LOWEST = -3.40282347e38f;   // the lowest finite float: e to the power of (-inf - it) is 0, not NaN
constexpr float SMALLEST_SUM = 1e-30f;      // divisor of RELU_MAX and LINEAR_MAX when all of a layer is zero

// The sum over the block, for all its threads. Once a kernel.
__device__ __forceinline__ float over_block(float own)
{
    __shared__ float sums[WARPS];
    for (int apart = 16; apart > 0; apart /= 2) own += __shfl_xor_sync(~0u, own, apart);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = own;
    __syncthreads();
    float total = sums[0];
    for (int warp = 1; warp < WARPS; ++warp) total += sums[warp];
    return total;
}

struct Part { float highest, sum; };  // of some units: the highest z, the sum of e^(z - highest)

__device__ __forceinline__ Part joined(Part one, Part other)
{
    const float highest = one.highest > other.highest ? one.highest : other.highest;
    const Part both = {highest, one.sum * expf(one.highest - highest) + other.sum * expf(other.highest - highest)};
    return both;
}

__device__ __forceinline__ void add(Part& left, const Part& right) { left = joined(left, right); }

// The row's highest z + bias and sum of exponentials, for all threads, in one pass (Milakov and Gimelshein 2018, "Online
// normalizer calculation for softmax"): a new highest scales the sum before it. A NaN makes the sum NaN.
__device__ __forceinline__ Part row_part(const float* row, const float* bias, int n)
{
    Part own = {LOWEST, 0};
#pragma unroll 4
    for (int j = threadIdx.x; j < n; j += THREADS) {
        const float z = bias ? row[j] + bias[j] : row[j];
        const float above = z - own.highest, e = expf(-fabsf(above));
        own.sum = above > 0 ? own.sum * e + 1 : own.sum + e;
        own.highest = above > 0 ? z : own.highest;
    }
    for (int apart = 16; apart > 0; apart /= 2) {
        const Part other = {__shfl_xor_sync(~0u, own.highest, apart), __shfl_xor_sync(~0u, own.sum, apart)};
        own = joined(own, other);
    }
    __shared__ Part parts[WARPS];
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
    __syncthreads();
    Part total = parts[0];
    for (int warp = 1; warp < WARPS; ++warp) total = joined(total, parts[warp]);
    return total;
}

// z = e^z / sum e^z, in place.
extern "C" __global__ void softmax(float* z, int b, int n, int ld)
{
    const int i = blockIdx.x;
    if (i >= b) return;
    float* const row = z + (long long)i * ld;
    const Part all = row_part(row, 0, n);
#pragma unroll 4
    for (int j = threadIdx.x; j < n; j += THREADS) row[j] = expf(row[j] - all.highest) / all.sum;
}

// normalizer[i] = log sum_j e^(z + bias); bias (n) or null.
extern "C" __global__ void log_sum_exp(const float* __restrict__ z, const float* __restrict__ bias,
                                       float* __restrict__ normalizer, int b, int n, int ld)
{
    const int i = blockIdx.x;
    if (i >= b) return;
    const Part all = row_part(z + (long long)i * ld, bias, n);
    if (threadIdx.x == 0) normalizer[i] = all.highest + logf(all.sum);
}

// parts[i] = the highest z + bias and the sum of e^(z + bias - it): log_sum_exp of a piece of a layer, (b, 2).
extern "C" __global__ void exp_parts(const float* __restrict__ z, const float* __restrict__ bias, float* __restrict__ parts,
                                     int b, int n, int ld)
{
    const int i = blockIdx.x;
    if (i >= b) return;
    const Part all = row_part(z + (long long)i * ld, bias, n);
    if (threadIdx.x == 0) parts[2 * (long long)i] = all.highest, parts[2 * (long long)i + 1] = all.sum;
}

// normalizer[i] = log_sum_exp over 8 pieces, joined two by two: parts (8, b, 2), of exp_parts. One thread an example, grid
// ceil(b / 256).
extern "C" __global__ void join_parts(const float* __restrict__ parts, float* __restrict__ normalizer, int b)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= b) return;
    Part part[SHARDS];
#pragma unroll
    for (int s = 0; s < SHARDS; ++s) {
        const float* at = parts + 2 * ((long long)s * b + i);
        part[s].highest = at[0], part[s].sum = at[1];
    }
    add_up(part);
    normalizer[i] = part[0].highest + logf(part[0].sum);
}

// RELU_MAX: z = max(0, z) / sum max(0, z); LINEAR_MAX: z = z / sum |z|; in place. total[i]: what was divided by.
extern "C" __global__ void rowwise_activation(float* __restrict__ z, float* __restrict__ total, int b, int n, int ld,
                                              int kind)
{
    const int i = blockIdx.x;
    if (i >= b) return;
    float* const row = z + (long long)i * ld;
    float own = 0;
#pragma unroll 4
    for (int j = threadIdx.x; j < n; j += THREADS) own += kind == LINEAR_MAX ? fabsf(row[j]) : activate(RELU, row[j], 0);
    float sum = over_block(own);
    sum = sum < SMALLEST_SUM ? SMALLEST_SUM : sum;
    if (threadIdx.x == 0) total[i] = sum;
#pragma unroll 4
    for (int j = threadIdx.x; j < n; j += THREADS)
        row[j] = kind == LINEAR_MAX ? row[j] / sum : activate(RELU, row[j] / sum, 0);
}

// delta in: dLoss/da, out: dLoss/dz. With m = sum_k delta_k a_k, SOFTMAX: a (delta - m); RELU_MAX: (delta - m) / total where
// a > 0; LINEAR_MAX: (delta - m sign(a)) / total; 0 in a layer of zeros. a like delta; `total` is not read for SOFTMAX.
// Twin: activations.activation_gradient.
extern "C" __global__ void rowwise_backward(float* __restrict__ delta, const float* __restrict__ a,
                                            const float* __restrict__ total, int b, int n, int ld, int kind)
{
    const int i = blockIdx.x;
    if (i >= b) return;
    float* const row = delta + (long long)i * ld;
    const float* const active = a + (long long)i * ld;
    float own = 0;
#pragma unroll 4
    for (int j = threadIdx.x; j < n; j += THREADS) own += row[j] * active[j];
    const float mean = over_block(own), sum = kind == SOFTMAX ? 1.0f : total[i];
    const float alive = sum > SMALLEST_SUM ? 1.0f : 0.0f;
#pragma unroll 4
    for (int j = threadIdx.x; j < n; j += THREADS) {
        const float y = active[j];
        if (kind == SOFTMAX)
            row[j] = (row[j] - mean) * y;
        else if (kind == RELU_MAX)
            row[j] = (row[j] - mean) * (y > 0 ? 1.0f : 0.0f) / sum * alive;
        else
            row[j] = (row[j] - mean * sign(y)) / sum * alive;
    }
}
