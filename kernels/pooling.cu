// Pooling of maps, forwards and back. x (rows, places of the source) and a (rows, places of the target), a row for each channel of
// each example, in the words of sweep.cuh. A thread has one number, any grid.
// Twin: nnlib/ops/pooling.py.
#include "sweep.cuh"

__device__ __forceinline__ long long own_number() { return (long long)blockIdx.x * THREADS + threadIdx.x; }

__device__ __forceinline__ long long all_threads() { return (long long)gridDim.x * THREADS; }

// Calls take(place) for the places of the source under a window, in the order of the kernel's, until that returns false.
template <class Take> __device__ __forceinline__ void under_window(const int* sweep, int window, Take take)
{
    const Spot from = first_of(sweep, spot_of(sweep, OUT, window));
    for (int z = 0; z < sweep[KERNEL]; ++z)
        for (int y = 0; y < sweep[AXIS_SIZE + KERNEL]; ++y)
            for (int x = 0; x < sweep[2 * AXIS_SIZE + KERNEL]; ++x) {
                const Spot tap = {0, z, y, x}, step = distance_of(sweep, tap);
                const int place = place_in(sweep, from.z + step.z, from.y + step.y, from.x + step.x);
                if (place >= 0 && !take(place)) return;
            }
}

// From which place of an axis of the kernel on, and up to which, a window may see a place of the source: where there is one window
// that is one place, as of a kernel as large as the map, of which all would take the square of its size.
__device__ __forceinline__ int first_tap(const int* axis, int seen) { return axis[OUT] == 1 ? seen / axis[DILATION] : 0; }

__device__ __forceinline__ int end_of_taps(const int* axis, int first)
{
    return axis[OUT] == 1 && first < axis[KERNEL] ? first + 1 : axis[KERNEL];
}

// Calls take(window) for the windows that see a place of the source, by the order of the kernel's places they see it with.
template <class Take> __device__ __forceinline__ void over_windows(const int* sweep, int place, Take take)
{
    const int *const rows = sweep + AXIS_SIZE, *const columns = rows + AXIS_SIZE;
    const Spot seen = from_padding(sweep, spot_of(sweep, SIZE, place));
    const Spot from = {0, first_tap(sweep, seen.z), first_tap(rows, seen.y), first_tap(columns, seen.x)};
    const Spot to = {0, end_of_taps(sweep, from.z), end_of_taps(rows, from.y), end_of_taps(columns, from.x)};
    for (int z = from.z; z < to.z; ++z)
        for (int y = from.y; y < to.y; ++y)
            for (int x = from.x; x < to.x; ++x) {
                const Spot tap = {0, z, y, x};
                const int window = result_of(sweep, seen, distance_of(sweep, tap));
                if (window >= 0) take(window);
            }
}

// How many places of an axis a window of it sees.
__device__ __forceinline__ int seen_by(const int* axis, int window)
{
    int count = 0;
    for (int k = 0; k < axis[KERNEL]; ++k) {
        const int place = window * axis[STRIDE] - axis[LOW] + k * axis[DILATION];
        count += place >= 0 && place < axis[SIZE];
    }
    return count;
}

__device__ __forceinline__ float count_of(const int* sweep, int window)
{
    const Spot spot = spot_of(sweep, OUT, window);
    const int count = seen_by(sweep, spot.z) * seen_by(sweep + AXIS_SIZE, spot.y) * seen_by(sweep + 2 * AXIS_SIZE, spot.x);
    return count > 0 ? (float)count : 1.0f;
}

// a = the largest under the window, NaN if one is; 0 over padding alone. Twin: pooling.forward.
extern "C" __global__ void max_pool(const float* __restrict__ x, float* __restrict__ a, const int* __restrict__ sweep,
                                    long long rows)
{
    const int target = sweep[TARGET];
    for (long long i = own_number(); i < rows * target; i += all_threads()) {
        const float* const map = x + i / target * sweep[SOURCE];
        bool found = false;
        float best = 0;
        under_window(sweep, (int)(i % target), [&](int place) {
            const float value = map[place];
            if (!found || value > best || value != value) best = value;
            found = true;
            return best == best;
        });
        a[i] = best;
    }
}

// a = the mean of what is under the window, 0 over padding alone. Twin: pooling.forward.
extern "C" __global__ void average_pool(const float* __restrict__ x, float* __restrict__ a, const int* __restrict__ sweep,
                                        long long rows)
{
    const int target = sweep[TARGET];
    for (long long i = own_number(); i < rows * target; i += all_threads()) {
        const float* const map = x + i / target * sweep[SOURCE];
        float sum = 0;
        under_window(sweep, (int)(i % target), [&](int place) { return sum += map[place], true; });
        a[i] = sum / count_of(sweep, (int)(i % target));
    }
}

// below = dLoss/dx from delta = dLoss/da, added to what is there if `add`: a place has all of each window whose first largest value
// it holds. Twin: pooling.backward.
extern "C" __global__ void max_pool_backward(const float* __restrict__ x, const float* __restrict__ a,
                                             const float* __restrict__ delta, float* below, const int* __restrict__ sweep,
                                             long long rows, int add)
{
    const int source = sweep[SOURCE], target = sweep[TARGET];
    for (long long i = own_number(); i < rows * source; i += all_threads()) {
        const long long row = i / source;
        const int own = (int)(i - row * source);
        const float *const map = x + row * source, *const best = a + row * target;
        float sum = 0;
        over_windows(sweep, own, [&](int window) {
            if (map[own] != best[window]) return;
            int first = -1;
            under_window(sweep, window, [&](int place) {
                if (map[place] == best[window]) first = place;
                return first < 0;
            });
            if (first == own) sum += delta[row * target + window];
        });
        below[i] = add ? below[i] + sum : sum;
    }
}

// The same of average_pool: each place under a window has as much of it. Twin: pooling.backward.
extern "C" __global__ void average_pool_backward(const float* __restrict__ delta, float* below, const int* __restrict__ sweep,
                                                 long long rows, int add)
{
    const int source = sweep[SOURCE], target = sweep[TARGET];
    for (long long i = own_number(); i < rows * source; i += all_threads()) {
        const float* const given = delta + i / source * target;
        float sum = 0;
        over_windows(sweep, (int)(i % source), [&](int window) { sum += given[window] / count_of(sweep, window); });
        below[i] = add ? below[i] + sum : sum;
    }
}
