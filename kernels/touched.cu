// Rows of a sparse input's weights that a batch touches: their update, and the steps that rows missed.
#include "broken.cuh"
#include "replay.cuh"
#include "touched.cuh"

// For each touched row: the steps that it missed with gradients of zero, then step `step` with its gradient (times scale[0],
// if scale is not null); last[row] = step. delta (b, n), row stride ld; w and the states (rows of the store, n), states that
// the rule does not have null; last: the step each row is at. noise: see entries.cuh; broken (1): see broken.cuh. Any grid.
// Twin: updates.NumpyUpdates.replay with a gradient from sparse_products.Touched.gradient.
extern "C" __global__ void touched_update(const int* __restrict__ batch, int count_at, int rows_at, int row_starts_at,
                                          int examples_at, int places_at, int values_at, const float* __restrict__ delta,
                                          int ld, float* __restrict__ w, float* __restrict__ state0,
                                          float* __restrict__ state1, int* __restrict__ last, int n, int rule,
                                          const float* __restrict__ paces, const long long* __restrict__ step,
                                          const float* __restrict__ hyper, const float* __restrict__ scale,
                                          const float* __restrict__ noise, unsigned long long key, int layers, int layer,
                                          int* broken)
{
    __shared__ Entry staged[THREADS];
    const Touched touched = touched_of(batch, count_at, rows_at, row_starts_at, examples_at, places_at, values_at, delta, ld,
                                       n, noise, key, step, layers, layer);
    const int now = (int)step[0], threads = threads_for(n), several = THREADS / threads;
    const bool whole = n % WIDE == 0 && aligned(w) && aligned(state0) && aligned(state1);
    const float factor = scale ? scale[0] : 1, *pace = paces + (long long)now * PACE_SIZE;
    for (int first = blockIdx.x * several; first < touched.count; first += gridDim.x * several) {
        const int i = first + threadIdx.x / threads, row = i < touched.count ? touched.rows[i] : 0, at = last[row];
        __syncthreads();  // all threads of a row have read `last` before one writes it
        if (i >= touched.count) continue;
        if (threadIdx.x % threads == 0) last[row] = now;
        for (int start = 0; start < n; start += threads * WIDE) {
            const int c = column_of(start, threads);
            if (!warp_has(c, n)) break;
            Piece piece = load(w, state0, state1, (long long)row * n + c, n - c, whole);  // under way during the sum
            Four g = gradient_of(touched, i, c, staged);
            for (int k = 0; k < WIDE; ++k) g.at[k] *= factor;
            replay(rule, piece, at + 1, now - 1, paces, hyper);
            apply(rule, piece, g, pace, hyper, true);
            if (!all_finite<WIDE>(piece.w.at)) mark_broken(broken, step);
            store(w, state0, state1, piece, (long long)row * n + c, n - c, whole);
        }
    }
}

// Brings the touched rows (batch null: all `rows` rows) to step step[0] - behind with gradients of zero; arrays as above.
// Any grid. Twin: updates.NumpyUpdates.replay without a gradient.
extern "C" __global__ void settle(const int* __restrict__ batch, int count_at, int rows_at, long long rows,
                                  float* __restrict__ w, float* __restrict__ state0, float* __restrict__ state1,
                                  int* __restrict__ last, int n, int rule, const float* __restrict__ paces,
                                  const long long* __restrict__ step, int behind, const float* __restrict__ hyper)
{
    const int* touched = batch ? section(batch, rows_at) : 0;
    const long long count = batch ? batch[count_at] : rows;
    const int upto = (int)step[0] - behind, threads = threads_for(n), several = THREADS / threads;
    const bool whole = n % WIDE == 0 && aligned(w) && aligned(state0) && aligned(state1);
    for (long long first = (long long)blockIdx.x * several; first < count; first += (long long)gridDim.x * several) {
        const long long i = first + threadIdx.x / threads, row = i >= count ? 0 : touched ? touched[i] : i;
        const int at = last[row];
        __syncthreads();  // all threads of a row have read `last` before one writes it
        if (i >= count || at >= upto) continue;
        if (threadIdx.x % threads == 0) last[row] = upto;
        for (int c = column_of(0, threads); c < n; c += threads * WIDE) {
            Piece piece = load(w, state0, state1, row * n + c, n - c, whole);
            replay(rule, piece, at + 1, upto, paces, hyper);
            store(w, state0, state1, piece, row * n + c, n - c, whole);
        }
    }
}

// parts[block] = the sum of the squares of g over the rows of the block, for clipping. Arguments as of touched_update. Any
// grid. Twin: numpy.sum(numpy.square(gradient, dtype=float64)) of sparse_products.Touched.gradient.
extern "C" __global__ void touched_squares(const int* __restrict__ batch, int count_at, int rows_at, int row_starts_at,
                                           int examples_at, int places_at, int values_at, const float* __restrict__ delta,
                                           int ld, double* __restrict__ parts, int n, const float* __restrict__ noise,
                                           unsigned long long key, const long long* __restrict__ step, int layers, int layer)
{
    __shared__ Entry staged[THREADS];
    __shared__ double sums[THREADS];
    const Touched touched = touched_of(batch, count_at, rows_at, row_starts_at, examples_at, places_at, values_at, delta, ld,
                                       n, noise, key, step, layers, layer);
    const int threads = threads_for(n), several = THREADS / threads;
    double sum = 0;
    for (int i = blockIdx.x * several + threadIdx.x / threads; i < touched.count; i += gridDim.x * several)
        for (int start = 0; start < n; start += threads * WIDE) {
            const int c = column_of(start, threads);
            if (!warp_has(c, n)) break;
            const Four g = gradient_of(touched, i, c, staged);
            for (int k = 0; k < WIDE; ++k) sum = fma((double)g.at[k], (double)g.at[k], sum);  // the square is exact
        }
    sums[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) parts[blockIdx.x] = sums[0];
}

// gradient[row * row_stride + c * column_stride] += g[c] for each touched row, for weights that are not only this input's.
// Arguments as of touched_update. Any grid. Twin: sparse_products.Touched.gradient, added to the gradient of the store.
extern "C" __global__ void touched_add(const int* __restrict__ batch, int count_at, int rows_at, int row_starts_at,
                                       int examples_at, int places_at, int values_at, const float* __restrict__ delta, int ld,
                                       float* __restrict__ gradient, long long row_stride, long long column_stride, int n,
                                       const float* __restrict__ noise, unsigned long long key,
                                       const long long* __restrict__ step, int layers, int layer)
{
    __shared__ Entry staged[THREADS];
    const Touched touched = touched_of(batch, count_at, rows_at, row_starts_at, examples_at, places_at, values_at, delta, ld,
                                       n, noise, key, step, layers, layer);
    const int threads = threads_for(n), several = THREADS / threads;
    for (int i = blockIdx.x * several + threadIdx.x / threads; i < touched.count; i += gridDim.x * several)
        for (int start = 0; start < n; start += threads * WIDE) {
            const int c = column_of(start, threads);
            if (!warp_has(c, n)) break;
            const Four g = gradient_of(touched, i, c, staged);
            float* out = gradient + touched.rows[i] * row_stride + c * column_stride;
            for (int k = 0; k < WIDE; ++k)
                if (c + k < n) out[k * column_stride] += g.at[k];
        }
}
