// The error of an output layer, or of a piece of one: loss and delta = dLoss/dz of the mean error, in one pass over the sums.
// A block does a tile of TILE units of one example: grid (b, ceil(n / TILE)). Twin: losses.block_error.
//
// z (b, n), `ld` floats from row to row: in, the sums of the units low .. low + n - 1 without bias; out, delta, unless
// LOSS_ONLY. bias (n) or null. In the batch: weights (b; none: 1) and for SOFTMAX shares (b), see losses.softmax_error.
// normalizer (b): log_sum_exp over the whole layer, for SOFTMAX. kind, activation, flags: see names.cuh and error.cuh.
// parts[block]: the block's loss, times the weights and not divided by b. key, step, layers, layer: of the dropout, if DROPPED,
// where the layer is not cut: element row n + column of the mask.
#include "names.cuh"
#include "batch.cuh"
#include "random.cuh"
#include "activation.cuh"
#include "error.cuh"

constexpr int EACH = 4;               // units of a thread, THREADS apart
constexpr int TILE = EACH * THREADS;  // units of a block

struct Dropout { unsigned long long key, number; };

// All loads before what waits for them.
__device__ __forceinline__ void load(float* x, const float* z, const float* bias, int left, int n)
{
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const int column = left + k * THREADS + threadIdx.x;
        x[k] = column >= n ? 0.0f : bias ? z[column] + bias[column] : z[column];
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

// Puts delta in place of one unit's sum and returns its loss. `at`: the unit's element of the mask.
__device__ __forceinline__ float finish(const Example& of, float* place, float x, float t, bool stored,
                                        const Dropout& noise, long long at)
{
    const bool keep = !(of.flags & DROPPED) || uniform(noise.key, noise.number, at) >= of.unit[DROPOUT];
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
extern "C" __global__ void __launch_bounds__(THREADS, 6) output_sparse(float* __restrict__ z, const float* __restrict__ bias, int b, int n, int ld,
                                         int low, const int* __restrict__ batch, int starts_at, int items_at,
                                         int values_at, int weights_at, int shares_at,
                                         const float* __restrict__ normalizer, int kind, int activation, int flags,
                                         const float* __restrict__ unit, const float* __restrict__ error,
                                         unsigned long long key, const long long* __restrict__ step, int layers,
                                         int layer, double* __restrict__ parts)
{
    __shared__ int entry[TILE];
    const int row = blockIdx.x, left = blockIdx.y * TILE;
    if (row >= b || left >= n) return;
    float* const sums = z + (long long)row * ld;
    float x[EACH];
    load(x, sums, bias, left, n);
    const int* const starts = section(batch, starts_at);
    const int first = starts[row], last = starts[row + 1];
    find_entries(section(batch, items_at), first, last, low + left, entry);

    // DSSTNE's cross entropy of sigmoid units takes every entry for a one.
    const bool ones = flags & COMPAT && kind == CROSS_ENTROPY && activation != SOFTMAX;
    const float* const values = ones ? 0 : floats(batch, values_at);
    const float one = activation == SOFTMAX ? 1.0f / max(1, last - first) : 1.0f;
    const Example of =
        example_of(batch, weights_at, shares_at, normalizer, kind, activation, flags, unit, error, row);
    const Dropout noise = {key, flags & DROPPED ? step[0] * layers + layer : 0ull};
    float loss = 0;
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const int place = k * THREADS + threadIdx.x, column = left + place;
        if (column >= n) break;
        const int at = entry[place];
        const float t = at < 0 ? 0.0f : values ? values[at] : one;
        loss += finish(of, sums + column, x[k], t, at >= 0, noise, (long long)row * n + column);
    }
    add_up(loss, parts);
}

// Dense targets: that of unit low + j of example i is floats(batch, targets_at)[i targets_ld + low + j].
extern "C" __global__ void __launch_bounds__(THREADS, 6) output_dense(float* __restrict__ z, const float* __restrict__ bias, int b, int n, int ld,
                                        int low, const int* __restrict__ batch, int targets_at, int targets_ld,
                                        int weights_at, int shares_at, const float* __restrict__ normalizer, int kind,
                                        int activation, int flags, const float* __restrict__ unit,
                                        const float* __restrict__ error, unsigned long long key,
                                        const long long* __restrict__ step, int layers, int layer,
                                        double* __restrict__ parts)
{
    const int row = blockIdx.x, left = blockIdx.y * TILE;
    if (row >= b || left >= n) return;
    float* const sums = z + (long long)row * ld;
    const float* const targets = floats(batch, targets_at) + (long long)row * targets_ld + low;
    float x[EACH], t[EACH];
    load(x, sums, bias, left, n);
    load(t, targets, 0, left, n);
    Example of = example_of(batch, weights_at, shares_at, normalizer, kind, activation, flags & ~ALONE, unit, error,
                            row);
    if (flags & COMPAT) of.boost_one = of.boost_zero = 1;  // DSSTNE does not boost here
    const Dropout noise = {key, flags & DROPPED ? step[0] * layers + layer : 0ull};
    float loss = 0;
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const int column = left + k * THREADS + threadIdx.x;
        if (column >= n) break;
        loss += finish(of, sums + column, x[k], t[k], t[k] != 0, noise, (long long)row * n + column);
    }
    add_up(loss, parts);
}
