// Products of matrices whose numbers are gathered from where they lie, a tile of the result a block (implicit GEMM, as in Chetlur
// et al. 2014, "cuDNN: efficient primitives for deep learning", section 3).
#pragma once
#include "sweep.cuh"

constexpr int TILE = 4;  // rows and columns of the result that a thread has

// sum over k < depth of left(row, k, step(k)) right(column(j), step(k)) for ROWS rows and COLUMNS columns, given to
// store(row, j, column(j), sum) in the order of k. A step or a column without a place (see Spot) counts as zeros. Steps and
// columns are found once for the block, DEPTH steps at a time. Sums by fmaf: one rounding a term, on any machine.
template <int ROWS, int COLUMNS, int DEPTH, class Step, class Column, class Left, class Right, class Store>
__device__ __forceinline__ void multiply(int depth, Step step, Column column, Left left, Right right, Store store)
{
    constexpr int ACROSS = COLUMNS / TILE;
    static_assert(ROWS / TILE * ACROSS == THREADS, "each thread has a part");
    __shared__ float lefts[DEPTH][ROWS + 1], rights[DEPTH][COLUMNS];  // one more, so that a column lies in many banks
    __shared__ Spot steps[DEPTH], columns[COLUMNS];
    const int t = threadIdx.x, row = t / ACROSS * TILE, across = t % ACROSS;
    float sums[TILE][TILE] = {};

    for (int j = t; j < COLUMNS; j += THREADS) columns[j] = column(j);
    for (int first = 0; first < depth; first += DEPTH) {
        __syncthreads();  // nobody still reads the numbers before these
        if (t < DEPTH) steps[t] = first + t < depth ? step(first + t) : nowhere();
        __syncthreads();
        for (int i = t; i < DEPTH * ROWS; i += THREADS) {
            const int k = i % DEPTH;
            lefts[k][i / DEPTH] = steps[k].at < 0 ? 0.0f : left(i / DEPTH, first + k, steps[k]);
        }
        for (int i = t; i < DEPTH * COLUMNS; i += THREADS) {
            const Spot one = columns[i % COLUMNS], other = steps[i / COLUMNS];
            rights[i / COLUMNS][i % COLUMNS] = one.at < 0 || other.at < 0 ? 0.0f : right(one, other);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            float a[TILE], b[TILE];
#pragma unroll
            for (int i = 0; i < TILE; ++i) a[i] = lefts[k][row + i], b[i] = rights[k][across + i * ACROSS];
#pragma unroll
            for (int i = 0; i < TILE; ++i)
#pragma unroll
                for (int j = 0; j < TILE; ++j) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
        }
    }
    if (depth <= 0) __syncthreads();  // the columns are there
#pragma unroll
    for (int i = 0; i < TILE; ++i)
#pragma unroll
        for (int j = 0; j < TILE; ++j) {
            const Spot one = columns[across + j * ACROSS];
            if (one.at >= 0) store(row + i, across + j * ACROSS, one, sums[i][j]);
        }
}
