// Sums over the entries of a sparse matrix: what a sparse input gives to the next layer, and its weights' gradient.
#pragma once
#include "batch.cuh"
#include "four.cuh"
#include "random.cuh"

constexpr int AHEAD = 8;  // rows that are loaded before the first of them is added: their latency is what takes time

// Denoising: entry `place` of the batch stays if its random number is at least p, and counts 1 / (1 - p) times.
// Twin: batches.add_noise.
struct Noise {
    const float* chance;  // p and 1 / (1 - p); null: no noise
    unsigned long long key, number;
};

struct Entries {
    const int* items;     // the row of the dense matrix that belongs to each entry
    const int* places;    // where its value and its noise stand; null: in the same order
    const float* values;  // null: all one
    Noise noise;
};

// A dense matrix as one thread sees it: from its own column on. It has up to four columns, `have` of them in the matrix.
struct Columns {
    const float* start;
    long long row_stride, column_stride;
    int have;
};

struct Entry { long long offset; float value; };  // of its row in the dense matrix

__device__ __forceinline__ Noise noise_of(const float* chance, unsigned long long key, const long long* step, int layers,
                                          int layer)
{
    const Noise noise = {chance, key, chance ? (unsigned long long)(step[0] * layers + layer) : 0};
    return noise;
}

__device__ __forceinline__ bool stays(const Noise& noise, int place)
{
    return !noise.chance || uniform(noise.key, noise.number, place) >= noise.chance[0];
}

__device__ __forceinline__ float value_of(const Entries& entries, int place)
{
    const float value = entries.values ? entries.values[place] : 1;
    return entries.noise.chance ? value * entries.noise.chance[1] : value;
}

// WHOLE: a thread's four columns are one access, and one without columns may read those from `start` on. ALL: there are
// AHEAD entries.
template <bool WHOLE, bool ALL>
__device__ __forceinline__ void add_rows(Four& sum, const Entry* entries, int count, const Columns& columns)
{
    Four x[AHEAD];
    for (int j = 0; j < AHEAD; ++j) {
        if (!ALL && j >= count) continue;
        const float* row = columns.start + entries[j].offset;
        if (WHOLE) x[j] = load(row, WIDE, true);
        else for (int k = 0; k < WIDE; ++k) x[j].at[k] = k < columns.have ? row[k * columns.column_stride] : 0;
    }
    for (int j = 0; j < AHEAD; ++j)
        for (int k = 0; k < WIDE; ++k)
            if (ALL || j < count) sum.at[k] += entries[j].value * x[j].at[k];
}

// The sum over the entries low .. high - 1 that stay, in order, of value * row. A warp is called with the same entries, and
// takes 32 of them at a time through its part of `staged` (shared, THREADS). Columns that are not there get zeros.
template <bool WHOLE>
__device__ __forceinline__ Four sum_of(const Entries& entries, int low, int high, const Columns& columns, Entry* staged)
{
    const int lane = threadIdx.x % WARP;
    Four sum = {}, nothing = {};
    staged += threadIdx.x - lane;
    for (int start = low; start < high; start += WARP) {
        const int e = start + lane, place = e >= high ? -1 : entries.places ? entries.places[e] : e;
        const bool there = place >= 0 && stays(entries.noise, place);
        const unsigned int all = __ballot_sync(~0u, there), before = all & ((1u << lane) - 1);
        if (there) {
            const Entry entry = {entries.items[e] * columns.row_stride, value_of(entries, place)};
            staged[__popc(before)] = entry;
        }
        __syncwarp();
        const int count = __popc(all), full = count / AHEAD * AHEAD;
        for (int first = 0; first < full; first += AHEAD) add_rows<WHOLE, true>(sum, staged + first, AHEAD, columns);
        if (full < count) add_rows<WHOLE, false>(sum, staged + full, count - full, columns);
        __syncwarp();  // all have read what is overwritten now
    }
    return columns.have > 0 ? sum : nothing;
}
