// The error of an output layer, or of a piece of one: loss and delta = dLoss/dz of the mean error, in one pass over the sums.
// A block does a tile of TILE units of one example: grid (b, ceil(n / TILE)). Twin: losses.block_error.
//
// z (b, n), `ld` floats from row to row: in, the sums of the units low .. low + n - 1 without bias; out, delta, unless
// LOSS_ONLY. bias (n) or null. In the batch: weights (b; none: 1) and for SOFTMAX shares (b), see losses.softmax_error.
// normalizer (b): log_sum_exp over the whole layer, for SOFTMAX. kind, activation, flags: see names.cuh and error.cuh.
// parts[block]: the block's loss, times the weights and not divided by b. key, step, layers, layer: of the dropout, if DROPPED,
// where the layer is not cut: element before + row n + column of the mask.
#include "names.cuh"
#include "batch.cuh"
#include "random.cuh"
#include "activation.cuh"
#include "error.cuh"

constexpr int EACH = 4;               // units of a thread, THREADS apart
constexpr int TILE = EACH * THREADS;  // units of a block

// Each thread brings what it will need of a row into shared memory, all at once, so that the loop over its units, which is too
// long to be unrolled, waits for memory once.
__device__ __forceinline__ void stage(float* tile, const float* row, const float* bias, int left, int n)
{
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const int place = k * THREADS + threadIdx.x, column = left + place;
        if (column < n) tile[place] = bias ? row[column] + bias[column] : row[column];
    }
}

// entry[c] = where unit low + c of the tile stands in `items`, ascending from `first` up to `last`; -1: nowhere.
__device__ __forceinline__ void find_entries(const int* items, int first, int last, int low, int* entry)
{
#pragma unroll
    for (int k = 0; k < EACH; ++k) entry[k * THREADS + threadIdx.x] = -1;
    for (int high = last; high - first > THREADS;) {  // until the threads can look at what is left together
        const int middle = first + (high - first) / 2;
        if (items[middle] < low)
            first = middle + 1;
        else
            high = middle;
    }
    __syncthreads();
    for (int i = first + threadIdx.x; i < last; i += THREADS) {
        const int place = items[i] - low;
        if (place >= TILE) break;
        if (place >= 0) entry[place] = i;
    }
    __syncthreads();
}

// Bit k of the result: whether dropout keeps the thread's unit k THREADS after its first, whose element of the mask is `at`.
__device__ __forceinline__ unsigned int kept(int flags, const float* unit, unsigned long long key,
                                             const long long* step, int layers, int layer, long long at)
{
    if (!(flags & DROPPED)) return ~0u;
    const unsigned long long number = step[0] * layers + layer;
    unsigned int bits = 0;
#pragma unroll 1
    for (int k = 0; k < EACH; ++k)
        if (uniform(key, number, at + k * THREADS) >= unit[DROPOUT]) bits |= 1u << k;
    return bits;
}

// Puts delta in place of one unit's sum and returns its loss.
__device__ __forceinline__ float finish(const Example& of, float* place, float x, float t, bool stored, bool keep)
{
    const Found found = unit_error(of, x, t, stored, keep);
    if (!(of.flags & LOSS_ONLY)) *place = found.delta;
    return found.loss;
}

// The sum over the block. One warp adds up in double, as that is slow on many a GPU; a thread's own few losses need no more
// digits than each of them has.
__device__ __forceinline__ void add_up(float loss, double* parts)
{
    __shared__ float losses[THREADS];
    losses[threadIdx.x] = loss;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    double sum = 0;
    for (int k = threadIdx.x; k < THREADS; k += 32) sum += losses[k];
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
    if (threadIdx.x == 0) parts[blockIdx.y * (long long)gridDim.x + blockIdx.x] = sum;
}

// Sparse targets: `items` are numbers of units in the whole layer, ascending, with `values` or all one; over SOFTMAX without
// values, 1 / (entries of the example). Units without an entry have the target 0.
extern "C" __global__ void output_sparse(float* __restrict__ z, const float* __restrict__ bias, int b, int n, int ld,
                                         int low, const int* __restrict__ batch, int starts_at, int items_at,
                                         int values_at, int weights_at, int shares_at,
                                         const float* __restrict__ normalizer, int kind, int activation, int flags,
                                         const float* __restrict__ unit, const float* __restrict__ error,
                                         unsigned long long key, const long long* __restrict__ step, int layers,
                                         int layer, long long before, double* __restrict__ parts)
{
    __shared__ float x[TILE];
    __shared__ int entry[TILE];
    const int row = blockIdx.x, left = blockIdx.y * TILE;
    if (row >= b || left >= n) return;
    float* const sums = z + (long long)row * ld;
    stage(x, sums, bias, left, n);
    const int* const starts = section(batch, starts_at);
    const int first = starts[row], last = starts[row + 1];
    find_entries(section(batch, items_at), first, last, low + left, entry);

    // DSSTNE's cross entropy of sigmoid units takes every entry for a one.
    const bool ones = flags & COMPAT && kind == CROSS_ENTROPY && activation != SOFTMAX;
    const float* const values = ones ? 0 : floats(batch, values_at);
    const float one = activation == SOFTMAX ? 1.0f / max(1, last - first) : 1.0f;
    const Example of =
        example_of(batch, weights_at, shares_at, normalizer, kind, activation, flags, unit, error, row);
    const unsigned int keep =
        kept(flags, unit, key, step, layers, layer, before + (long long)row * n + left + threadIdx.x);
    float loss = 0;
#pragma unroll 1
    for (int place = threadIdx.x; place < TILE && place < n - left; place += THREADS) {
        const int at = entry[place], column = left + place;
        const float t = at < 0 ? 0.0f : values ? values[at] : one;
        loss += finish(of, sums + column, x[place], t, at >= 0, keep >> place / THREADS & 1);
    }
    add_up(loss, parts);
}

// Dense targets: that of unit low + j of example i is floats(batch, targets_at)[i targets_ld + low + j].
extern "C" __global__ void output_dense(float* __restrict__ z, const float* __restrict__ bias, int b, int n, int ld,
                                        int low, const int* __restrict__ batch, int targets_at, int targets_ld,
                                        int weights_at, int shares_at, const float* __restrict__ normalizer, int kind,
                                        int activation, int flags, const float* __restrict__ unit,
                                        const float* __restrict__ error, unsigned long long key,
                                        const long long* __restrict__ step, int layers, int layer,
                                        long long before, double* __restrict__ parts)
{
    __shared__ float x[TILE], t[TILE];
    const int row = blockIdx.x, left = blockIdx.y * TILE;
    if (row >= b || left >= n) return;
    float* const sums = z + (long long)row * ld;
    const float* const targets = floats(batch, targets_at) + (long long)row * targets_ld + low;
    stage(x, sums, bias, left, n);
    stage(t, targets, 0, left, n);
    Example of = example_of(batch, weights_at, shares_at, normalizer, kind, activation, flags & ~ALONE, unit, error,
                            row);
    if (flags & COMPAT) of.boost_one = of.boost_zero = 1;  // DSSTNE does not boost here
    const unsigned int keep =
        kept(flags, unit, key, step, layers, layer, before + (long long)row * n + left + threadIdx.x);
    float loss = 0;
#pragma unroll 1
    for (int place = threadIdx.x; place < TILE && place < n - left; place += THREADS) {
        const int column = left + place;
        loss += finish(of, sums + column, x[place], t[place], t[place] != 0, keep >> place / THREADS & 1);
    }
    add_up(loss, parts);
}
