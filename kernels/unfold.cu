// Convolution by products of whole matrices, which cuBLAS does: what a kernel sees laid out in rows, and back. The words of
// sweep.cuh; `first` and `some` say which examples of a batch are laid out at a time. A thread stands on one place of one
// example, and goes through every gridDim.y-th channel. Twins: convolution.unfold and convolution.fold.
#include "sweep.cuh"

// The place that a thread stands on, among `some` examples of `places` each: at = the example, -1 beyond the last; x = the place.
__device__ __forceinline__ Spot own_place(int some, int places)
{
    const long long own = (long long)blockIdx.x * THREADS + threadIdx.x;
    Spot spot = nowhere();
    if (own >= (long long)some * places) return spot;
    spot.at = (int)(own / places);
    spot.x = (int)(own - (long long)spot.at * places);
    return spot;
}

// rows (channels volume, some places of the result): row c volume + k is what place k of the kernel sees of channel c of x, zero in
// the padding. Grid (ceil(some places / 256), any). Twin: convolution.unfold.
extern "C" __global__ void unfold(const float* __restrict__ x, float* __restrict__ rows, const int* __restrict__ sweep, int first,
                                  int some)
{
    const int target = sweep[TARGET], volume = sweep[VOLUME], channels = sweep[GROUPS] * sweep[BELOW];
    const Spot own = own_place(some, target);
    if (own.at < 0) return;
    const Spot from = first_of(sweep, spot_of(sweep, OUT, own.x));
    const long long across = (long long)some * target, column = (long long)own.at * target + own.x;
    for (int channel = blockIdx.y; channel < channels; channel += gridDim.y) {
        const float* const map = x + ((long long)(first + own.at) * channels + channel) * sweep[SOURCE];
        float* row = rows + (long long)channel * volume * across + column;
        for (int z = 0; z < sweep[KERNEL]; ++z)
            for (int y = 0; y < sweep[AXIS_SIZE + KERNEL]; ++y)
                for (int k = 0; k < sweep[2 * AXIS_SIZE + KERNEL]; ++k, row += across) {
                    const int place = place_in(sweep, from.z + z * sweep[DILATION], from.y + y * sweep[AXIS_SIZE + DILATION],
                                               from.x + k * sweep[2 * AXIS_SIZE + DILATION]);
                    *row = place < 0 ? 0.0f : map[place];
                }
    }
}

// The way back: x, added to what is there if `add`, = the sum of what lies in `rows` for each place of it, in the order of the
// places of the kernel. Grid (ceil(some places of x / 256), any). Twin: convolution.fold.
extern "C" __global__ void fold(const float* __restrict__ rows, float* x, const int* __restrict__ sweep, int first, int some,
                                int add)
{
    const int target = sweep[TARGET], volume = sweep[VOLUME], source = sweep[SOURCE], channels = sweep[GROUPS] * sweep[BELOW];
    const Spot own = own_place(some, source);
    if (own.at < 0) return;
    const Spot seen = from_padding(sweep, spot_of(sweep, SIZE, own.x));
    const long long across = (long long)some * target, column = (long long)own.at * target;
    for (int channel = blockIdx.y; channel < channels; channel += gridDim.y) {
        const float* row = rows + (long long)channel * volume * across + column;
        float sum = 0;
        for (int z = 0; z < sweep[KERNEL]; ++z)
            for (int y = 0; y < sweep[AXIS_SIZE + KERNEL]; ++y)
                for (int k = 0; k < sweep[2 * AXIS_SIZE + KERNEL]; ++k, row += across) {
                    const Spot tap = {0, z, y, k};
                    const int place = result_of(sweep, seen, distance_of(sweep, tap));
                    if (place >= 0) sum += row[place];
                }
        float* const out = x + ((long long)(first + own.at) * channels + channel) * source + own.x;
        *out = add ? *out + sum : sum;
    }
}

// rows (channels, some places) = maps (b, channels, places) of some examples. Grid (ceil(some places / 256), any).
// Twin: x.swapaxes(0, 1).
extern "C" __global__ void maps_to_rows(const float* __restrict__ maps, float* __restrict__ rows, int channels, int places,
                                        int first, int some)
{
    const Spot own = own_place(some, places);
    if (own.at < 0) return;
    for (int channel = blockIdx.y; channel < channels; channel += gridDim.y)
        rows[((long long)channel * some + own.at) * places + own.x] =
            maps[((long long)(first + own.at) * channels + channel) * places + own.x];
}

// The way back, with bias (channels) or null; added to what is there if `add`. Twin: x.swapaxes(0, 1).
extern "C" __global__ void rows_to_maps(const float* __restrict__ rows, const float* __restrict__ bias, float* maps, int channels,
                                        int places, int first, int some, int add)
{
    const Spot own = own_place(some, places);
    if (own.at < 0) return;
    for (int channel = blockIdx.y; channel < channels; channel += gridDim.y) {
        const float row = rows[((long long)channel * some + own.at) * places + own.x], sum = bias ? row + bias[channel] : row;
        float* const out = maps + ((long long)(first + own.at) * channels + channel) * places + own.x;
        *out = add ? *out + sum : sum;
    }
}
