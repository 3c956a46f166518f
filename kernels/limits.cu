// Limits of the norms of deltas and weights, and the penalty of activations that are not sparse.
#include "columns.cuh"

constexpr int CHUNK = 2048;  // rows that a block of column_squares and limit_columns takes
constexpr float MEAN_FLOOR = 1e-6f;  // of the mean activation, as in DSSTNE
constexpr float MEAN_CEILING = (float)(1 - 1e-6);

// What scales a vector of this norm down to the limit: of a norm of 0, 1; NaN stays NaN, unlike in fminf.
__device__ __forceinline__ float limiting(float norm, float limit)
{
    const float factor = limit / norm;
    return factor > 1 ? 1 : factor;
}

// Scales a row down to the limit of `times` its norm. Each thread adds up the squares of every 256th element, then
// the block adds these sums by halves.
__device__ __forceinline__ void limit_row(float* row, int n, float times, float limit)
{
    __shared__ float sums[THREADS];
    const int t = threadIdx.x;
    float own = 0;
    for (int j = t; j < n; j += THREADS) own += row[j] * row[j];
    __syncthreads();  // nobody still reads the sums of the row before
    sums[t] = own;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) sums[t] += sums[t + half];
        __syncthreads();
    }
    const float factor = limiting(sqrtf(sums[0]) * times, limit);
    if (factor == 1) return;
    for (int j = t; j < n; j += THREADS) row[j] *= factor;
}

// delta (rows, n), row i scaled by min(1, limit / (b |row i|)): the limit is that of each example's own delta, which is
// b times its part in the mean. One block a row, grid (rows), b at most. Twin: limits.limit_norms.
extern "C" __global__ void limit_delta(float* delta, int b, int n, int ld, float limit)
{
    const int row = blockIdx.x;
    if (row >= b) return;
    limit_row(delta + (long long)row * ld, n, (float)b, limit);
}

// Each row of w (rows, n) scaled by min(1, limit / |row|): WeightNorm of weights that stand by output unit. One block
// a row, blockIdx.x, += gridDim.x: any grid. Twin: limits.limit_norms.
extern "C" __global__ void limit_rows(float* w, long long rows, int n, float limit)
{
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) limit_row(w + row * n, n, 1, limit);
}

// parts[k, column] = the sum of the squares of rows k CHUNK .. k CHUNK + CHUNK - 1 of a column of w (rows, n). Grid
// (ceil(n / 32), chunks), blocks as in columns.cuh: few columns alone would not fill a GPU. The first half of limit_columns.
extern "C" __global__ void column_squares(const float* __restrict__ w, float* __restrict__ parts, long long rows, int n)
{
    const int column = blockIdx.x * 32 + threadIdx.x % 32, lane = threadIdx.x / 32;
    const long long begin = (long long)blockIdx.y * CHUNK, end = begin + CHUNK < rows ? begin + CHUNK : rows;
    const long long count = column < n ? end : 0;  // all threads meet at the barriers
    float part[AHEAD], own = 0;
    for (long long first = begin + lane; first < count; first += AHEAD * LANES) {
        load(part, w + column, first, count, n, 0);
        for (int j = 0; j < AHEAD; ++j) own += part[j] * part[j];
    }
    own = over_lanes(own);
    if (column < n && lane == 0) parts[(long long)blockIdx.y * n + column] = own;
}

// Each column of w (rows, n) scaled by min(1, limit / |column|): WeightNorm of weights that stand by input unit. parts:
// of column_squares, whose grid is this one's. Twin: limits.limit_norms.
extern "C" __global__ void limit_columns(float* w, const float* __restrict__ parts, long long rows, int n, float limit)
{
    const int column = blockIdx.x * 32 + threadIdx.x % 32, lane = threadIdx.x / 32;
    if (column >= n) return;
    float squares = 0;
    for (int k = 0; k < gridDim.y; ++k) squares += parts[(long long)k * n + column];
    const float factor = limiting(sqrtf(squares), limit);
    if (factor == 1) return;
    const long long begin = (long long)blockIdx.y * CHUNK, end = begin + CHUNK < rows ? begin + CHUNK : rows;
    float part[AHEAD];
    for (long long first = begin + lane; first < end; first += AHEAD * LANES) {
        load(part, w + column, first, end, n, 0);
        for (int j = 0; j < AHEAD && first + j * LANES < end; ++j)
            w[(first + j * LANES) * n + column] = part[j] * factor;
    }
}

// What the sparseness penalty adds to each example's delta: penalty[j] = (beta / b) ((1 - p) / (1 - m) - p / m) with
// m the mean activation of unit j over the batch, kept off 0 and 1. a (b, n), penalty (n). Grid ceil(n / 32), blocks
// as in columns.cuh. Twin: limits.sparseness_gradient; an empty batch changes nothing.
extern "C" __global__ void sparseness(const float* __restrict__ a, float* penalty, int b, int n, float p, float beta)
{
    if (b <= 0) return;
    const int column = blockIdx.x * 32 + threadIdx.x % 32, lane = threadIdx.x / 32;
    const int rows = column < n ? b : 0;
    float part[AHEAD], own = 0;
    for (int first = lane; first < rows; first += AHEAD * LANES) {
        load(part, a + column, first, rows, n, 0);
        for (int j = 0; j < AHEAD; ++j) own += part[j];
    }
    float mean = over_lanes(own) / b;
    mean = mean < MEAN_FLOOR ? MEAN_FLOOR : mean > MEAN_CEILING ? MEAN_CEILING : mean;
    if (column < n && lane == 0) penalty[column] = (beta / b) * ((1 - p) / (1 - mean) - p / mean);
}
