// Layers of several sources, and what is done with whole maps. Rows are examples, or one channel of one example each.
// Twin: nnlib/ops/joining.py.
#include "names.cuh"
#include "random.cuh"
#include "activation.cuh"

constexpr int WARPS = THREADS / 32;
constexpr float SMALL = 1e-8f;               // is added to lengths in the cosine
constexpr float SMALLEST = 1.17549435e-38f;  // divisor where a length is 0

// Calls take(row) for each row with a warp on it: any grid.
template <class Take> __device__ __forceinline__ void each_row(long long rows, Take take)
{
    const long long warps = (long long)gridDim.x * WARPS;
    for (long long row = (long long)blockIdx.x * WARPS + threadIdx.x / 32; row < rows; row += warps) take(row);
}

// Whether dropout keeps a whole map: number `row` of what NumPy draws for (examples, channels).
__device__ __forceinline__ bool keeps(const float* unit, unsigned long long key, const long long* step, int layers, int layer,
                                      long long row)
{
    return uniform(key, step[0] * layers + layer, row) >= unit[DROPOUT];
}

// out = a after dropout of whole maps, rows = b channels of n places; `before` of the mask's rows are not here.
// Twin: activations.apply_dropout.
extern "C" __global__ void drop_maps(const float* __restrict__ a, float* __restrict__ out, long long rows, int n,
                                     const float* __restrict__ unit, unsigned long long key, const long long* __restrict__ step,
                                     int layers, int layer, long long before)
{
    each_row(rows, [=](long long row) {
        const bool keep = keeps(unit, key, step, layers, layer, before + row);
        for (int j = threadIdx.x % 32; j < n; j += 32) out[row * n + j] = drop(a[row * n + j], keep, unit);
    });
}

// delta in: dLoss/d(what drop_maps gave), out: dLoss/da. Twin: activations.dropout_derivative.
extern "C" __global__ void drop_maps_backward(float* delta, long long rows, int n, const float* __restrict__ unit,
                                              unsigned long long key, const long long* __restrict__ step, int layers, int layer,
                                              long long before)
{
    each_row(rows, [=](long long row) {
        const float factor = keeps(unit, key, step, layers, layer, before + row) ? unit[DROP_SCALE] : 0.0f;
        for (int j = threadIdx.x % 32; j < n; j += 32) delta[row * n + j] *= factor;
    });
}

// x (rows, n) *= y (rows): a factor for each map. Twin: joining.forward.
extern "C" __global__ void mul_maps(float* x, const float* __restrict__ y, long long rows, int n)
{
    each_row(rows, [=](long long row) {
        for (int j = threadIdx.x % 32; j < n; j += 32) x[row * n + j] *= y[row];
    });
}

// sums (rows) = the sum of each row of x (rows, n), added to what is there if `add`. Twin: joining.backward.
extern "C" __global__ void sum_maps(const float* __restrict__ x, float* sums, long long rows, int n, int add)
{
    each_row(rows, [=](long long row) {
        float own = 0;
        for (int j = threadIdx.x % 32; j < n; j += 32) own += x[row * n + j];
        for (int apart = 16; apart > 0; apart /= 2) own += __shfl_xor_sync(~0u, own, apart);
        if (threadIdx.x % 32 == 0) sums[row] = add ? sums[row] + own : own;
    });
}

// to[row, j] = from[row, j], j < n, added to what is there if `add`; rows lie `ld` and `to_ld` floats apart. Twin: joining.forward.
extern "C" __global__ void copy_rows(const float* __restrict__ from, float* to, long long rows, int n, int ld, int to_ld, int add)
{
    each_row(rows, [=](long long row) {
        for (int j = threadIdx.x % 32; j < n; j += 32) {
            float* const out = to + row * to_ld + j;
            *out = add ? *out + from[row * ld + j] : from[row * ld + j];
        }
    });
}

// x = the larger of x and y, NaN if one is. Any grid. Twin: np.maximum.
extern "C" __global__ void maximum(float* x, const float* __restrict__ y, long long n)
{
    const long long threads = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < n; i += threads)
        if (y[i] > x[i] || y[i] != y[i]) x[i] = y[i];
}

// below = delta where a source x is the largest, a, else 0; added to what is there if `add`. Any grid. Twin: joining.backward.
extern "C" __global__ void maxout_backward(const float* __restrict__ x, const float* __restrict__ a,
                                           const float* __restrict__ delta, float* below, long long n, int add)
{
    const long long threads = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < n; i += threads) {
        const float own = x[i] == a[i] ? delta[i] : 0.0f;
        below[i] = add ? below[i] + own : own;
    }
}

struct Like { float dot, length, other; };  // x . y, |x| and |y|

// Of one row of n numbers each, for all lanes of the warp that is on it.
__device__ __forceinline__ Like compared(const float* x, const float* y, int n)
{
    float dot = 0, own = 0, other = 0;
    for (int j = threadIdx.x % 32; j < n; j += 32)
        dot += x[j] * y[j], own += x[j] * x[j], other += y[j] * y[j];
    for (int apart = 16; apart > 0; apart /= 2) {
        dot += __shfl_xor_sync(~0u, dot, apart);
        own += __shfl_xor_sync(~0u, own, apart);
        other += __shfl_xor_sync(~0u, other, apart);
    }
    const Like like = {dot, sqrtf(own), sqrtf(other)};
    return like;
}

// a[row, at] = x . y of each row, with `cosine` over (|x| + 1e-8)(|y| + 1e-8). x, y (rows, n), a (rows, ld). Twin: joining.forward.
extern "C" __global__ void compare_rows(const float* __restrict__ x, const float* __restrict__ y, float* a, long long rows, int n,
                                        int ld, int at, int cosine)
{
    each_row(rows, [=](long long row) {
        const Like like = compared(x + row * n, y + row * n, n);
        const float scale = cosine ? (like.length + SMALL) * (like.other + SMALL) : 1.0f;
        if (threadIdx.x % 32 == 0) a[row * ld + at] = like.dot / scale;
    });
}

// below = dLoss/dx, added to what is there if `add`, from delta[row, at] = dLoss/d(compare_rows): delta y, with `cosine` delta (y /
// ((|x| + 1e-8)(|y| + 1e-8)) - cosine x / (|x| (|x| + 1e-8))). delta (rows, ld). Twin: joining.backward.
extern "C" __global__ void compare_rows_backward(const float* __restrict__ x, const float* __restrict__ y,
                                                 const float* __restrict__ delta, float* below, long long rows, int n, int ld,
                                                 int at, int cosine, int add)
{
    each_row(rows, [=](long long row) {
        const Like like = compared(x + row * n, y + row * n, n);
        const float share = delta[row * ld + at], scale = (like.length + SMALL) * (like.other + SMALL);
        const float of_other = cosine ? share / scale : share, own = like.length * (like.length + SMALL);
        const float of_own = cosine ? share * (like.dot / scale) / (own < SMALLEST ? SMALLEST : own) : 0.0f;
        for (int j = threadIdx.x % 32; j < n; j += 32) {
            const float found = y[row * n + j] * of_other - x[row * n + j] * of_own;
            below[row * n + j] = add ? below[row * n + j] + found : found;
        }
    });
}
