// What sparse inputs give to the next layer.
#include "entries.cuh"
#include "tree.cuh"

// z[i, c] = sum over the entries j of example i, in order, of value_j w[items_j * row_stride + c * column_stride], added to
// what is there if `add`. z (b, n), row stride ld; w (units, n) or, for weights used transposed (row_stride 1), (n, units).
// noise: null, or p and 1 / (1 - p) of denoising, see entries.cuh. A thread has four columns next to each other.
// Grid (b, ceil(n / 1024)). Twin: sparse_products.product, and batches.add_noise.
extern "C" __global__ void gather(const int* __restrict__ batch, int starts_at, int items_at, int values_at,
                                  const float* __restrict__ w, long long row_stride, long long column_stride,
                                  float* __restrict__ z, int b, int n, int ld, int add, const float* __restrict__ noise,
                                  unsigned long long key, const long long* __restrict__ step, int layers, int layer)
{
    __shared__ Entry staged[THREADS];
    const int i = blockIdx.x, c = (blockIdx.y * THREADS + threadIdx.x) * WIDE, have = n - c;
    if (i >= b || c - (int)(threadIdx.x % WARP) * WIDE >= n) return;  // a warp as a whole
    const int* starts = section(batch, starts_at);
    const Entries entries = {section(batch, items_at), 0, floats(batch, values_at), noise_of(noise, key, step, layers, layer)};
    const Columns columns = {w + (have > 0 ? c * column_stride : 0), row_stride, column_stride, have};
    const bool whole = column_stride == 1 && n % WIDE == 0 && row_stride % WIDE == 0 && aligned(w);
    Four sum = whole ? sum_of<true>(entries, starts[i], starts[i + 1], columns, staged)
                     : sum_of<false>(entries, starts[i], starts[i + 1], columns, staged);
    const bool straight = n % WIDE == 0 && ld % WIDE == 0 && aligned(z);
    float* out = z + (long long)i * ld + c;
    if (add) {
        const Four before = load(out, have, straight);
        for (int k = 0; k < WIDE; ++k) sum.at[k] = before.at[k] + sum.at[k];
    }
    store(out, sum, have, straight);
}

// As `gather`, of an input that is cut: z[i, c] = the tree's sum over `shards` shards (1, 2, 4 or 8) of the sums over the entries
// of example i in each; those of shard s are the entries starts[i shards + s] .. starts[i shards + s + 1] - 1. In the batch:
// starts (b shards + 1), items (rows of w), places (nnz: where in the whole batch an entry stands: its noise is drawn by that,
// and `values` has the whole batch's). w (units, n). Grid (b, ceil(n / 1024)). Twin: cpu/forward.py, for a wide input.
extern "C" __global__ void gather_shards(const int* __restrict__ batch, int starts_at, int items_at, int places_at,
                                         int values_at, int shards, const float* __restrict__ w, float* __restrict__ z, int b,
                                         int n, const float* __restrict__ noise, unsigned long long key,
                                         const long long* __restrict__ step, int layers, int layer)
{
    __shared__ Entry staged[THREADS];
    const int i = blockIdx.x, c = (blockIdx.y * THREADS + threadIdx.x) * WIDE, have = n - c;
    if (i >= b || c - (int)(threadIdx.x % WARP) * WIDE >= n) return;  // a warp as a whole
    const int* starts = section(batch, starts_at) + (long long)i * shards;
    const Entries entries = {section(batch, items_at), section(batch, places_at), floats(batch, values_at),
                             noise_of(noise, key, step, layers, layer)};
    const Columns columns = {w + (have > 0 ? c : 0), n, 1, have};
    const bool whole = n % WIDE == 0 && aligned(w);
    Tree tree = {};
    Four sum = {};
    for (int s = 0; s < shards; ++s) {
        sum = whole ? sum_of<true>(entries, starts[s], starts[s + 1], columns, staged)
                    : sum_of<false>(entries, starts[s], starts[s + 1], columns, staged);
        take(tree, s, sum);
    }
    store(z + (long long)i * n + c, sum, have, n % WIDE == 0 && aligned(z));
}

// z[i, items_j] += value_j for the entries j of example i, in order: a skip connection from a sparse input. z (b, n), row
// stride ld. One thread an example, grid ceil(b / 256). Twin: the numpy.add.at in forward.Forward.sums.
extern "C" __global__ void skip_add(const int* __restrict__ batch, int starts_at, int items_at, int values_at,
                                    float* __restrict__ z, int b, int n, int ld, const float* __restrict__ noise,
                                    unsigned long long key, const long long* __restrict__ step, int layers, int layer)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= b) return;
    const int* starts = section(batch, starts_at);
    const Entries entries = {section(batch, items_at), 0, floats(batch, values_at), noise_of(noise, key, step, layers, layer)};
    for (int e = starts[i]; e < starts[i + 1]; ++e) {
        const int item = entries.items[e];
        if (item < n && stays(entries.noise, e)) z[(long long)i * ld + item] += value_of(entries, e);
    }
}
