// The touched rows of a sparse input's weights, and their gradient. A row has as many warps as its columns fill, at most a
// block; so a block has one to eight rows at a time.
#pragma once
#include "entries.cuh"

struct Touched {
    const int* rows;    // units of the input that occur in the batch, ascending
    const int* starts;  // of the entries of each
    int count;
    Entries entries;    // item: the example
    const float* delta;
    int ld, n;
    bool whole;
};

__device__ __forceinline__ Touched touched_of(const int* batch, int count_at, int rows_at, int row_starts_at, int examples_at,
                                              int places_at, int values_at, const float* delta, int ld, int n,
                                              const float* noise, unsigned long long key, const long long* step, int layers,
                                              int layer)
{
    const Entries entries = {section(batch, examples_at), section(batch, places_at), floats(batch, values_at),
                             noise_of(noise, key, step, layers, layer)};
    const bool whole = n % WIDE == 0 && ld % WIDE == 0 && aligned(delta);
    const int *rows = section(batch, rows_at), *starts = section(batch, row_starts_at);
    const Touched touched = {rows, starts, batch[count_at], entries, delta, ld, n, whole};
    return touched;
}

// Threads to a row of n columns: whole warps, a power of two of them.
__device__ __forceinline__ int threads_for(int n)
{
    int threads = WARP;
    while (threads < THREADS && threads * WIDE < n) threads *= 2;
    return threads;
}

// g[c .. c + 3] of touched row i: the sum over its entries, in order, of value * delta[example, c]. Called by whole warps.
__device__ __forceinline__ Four gradient_of(const Touched& touched, int i, int c, Entry* staged)
{
    const int low = touched.starts[i], high = touched.starts[i + 1], have = touched.n - c;
    const Columns columns = {touched.delta + (have > 0 ? c : 0), touched.ld, 1, have};
    return touched.whole ? sum_of<true>(touched.entries, low, high, columns, staged)
                         : sum_of<false>(touched.entries, low, high, columns, staged);
}

// The first column of a thread, and whether its warp has any, in the part of a row that starts with column `start`.
__device__ __forceinline__ int column_of(int start, int threads) { return start + (int)threadIdx.x % threads * WIDE; }
__device__ __forceinline__ bool warp_has(int c, int n) { return c - (int)(threadIdx.x % WARP) * WIDE < n; }
