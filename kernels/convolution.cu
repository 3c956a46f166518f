// Convolution of maps straight from where they lie. x (b, groups below, places) and its gradient, z (b, groups above, places) and
// its gradient delta, w (groups above, below volume), in the words of sweep.cuh. A block has a tile of one group: 64 x 64, or 4 x
// 1024 (`_narrow`) where groups have few channels. Twin: nnlib/ops/convolution.py.
#include "gathered.cuh"

// z = w * x + bias, added to what is there if `add`; bias (channels) or null.
template <int ROWS, int COLUMNS, int DEPTH>
__device__ __forceinline__ void forward(const float* x, const float* w, const float* bias, float* z, const int* sweep, int b,
                                        int add)
{
    const int group = blockIdx.z, top = blockIdx.y * ROWS, below = sweep[BELOW], above = sweep[ABOVE], target = sweep[TARGET];
    const int fan_in = below * sweep[VOLUME];
    const long long begin = (long long)blockIdx.x * COLUMNS;
    multiply<ROWS, COLUMNS, DEPTH>(
        fan_in,
        [=](int k) {
            Spot spot = distance_of(sweep, spot_of(sweep, KERNEL, k % sweep[VOLUME]));
            spot.at = k / sweep[VOLUME];
            return spot;
        },
        [=](int j) {
            const long long n = begin + j, example = n / target;
            if (example >= b) return nowhere();
            Spot spot = first_of(sweep, spot_of(sweep, OUT, (int)(n - example * target)));
            spot.at = (int)example;
            return spot;
        },
        [=](int row, int k, const Spot&) {
            return top + row < above ? w[(long long)(group * above + top + row) * fan_in + k] : 0.0f;
        },
        [=](const Spot& from, const Spot& step) {
            const int place = place_in(sweep, from.z + step.z, from.y + step.y, from.x + step.x);
            const long long map = ((long long)from.at * sweep[GROUPS] + group) * below + step.at;
            return place < 0 ? 0.0f : x[map * sweep[SOURCE] + place];
        },
        [=](int row, int j, const Spot& from, float sum) {
            if (top + row >= above) return;
            const int channel = group * above + top + row;
            const long long example = from.at, p = begin + j - example * target;
            float* const out = z + (example * sweep[GROUPS] * above + channel) * target + p;
            const float biased = bias ? sum + bias[channel] : sum;
            *out = add ? *out + biased : biased;
        });
}

// Grid (ceil(b places / 64), ceil(above / 64), groups). Twin: convolution.forward.
extern "C" __global__ void convolution(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
                                       float* z, const int* __restrict__ sweep, int b, int add)
{
    forward<64, 64, 16>(x, w, bias, z, sweep, b, add);
}

// Grid (ceil(b places / 1024), ceil(above / 4), groups). Twin: convolution.forward.
extern "C" __global__ void convolution_narrow(const float* __restrict__ x, const float* __restrict__ w,
                                              const float* __restrict__ bias, float* z, const int* __restrict__ sweep, int b,
                                              int add)
{
    forward<4, 1024, 4>(x, w, bias, z, sweep, b, add);
}

// gradient = dLoss/dx, added to what is there if `add`: a place gathers from all results that saw it.
template <int ROWS, int COLUMNS, int DEPTH>
__device__ __forceinline__ void input_gradient(const float* delta, const float* w, float* gradient, const int* sweep, int b,
                                               int add)
{
    const int group = blockIdx.z, top = blockIdx.y * ROWS, below = sweep[BELOW], above = sweep[ABOVE], source = sweep[SOURCE];
    const int volume = sweep[VOLUME];
    const long long begin = (long long)blockIdx.x * COLUMNS;
    multiply<ROWS, COLUMNS, DEPTH>(
        above * volume,
        [=](int k) {
            Spot spot = distance_of(sweep, spot_of(sweep, KERNEL, k % volume));
            spot.at = k / volume;
            return spot;
        },
        [=](int j) {
            const long long n = begin + j, example = n / source;
            if (example >= b) return nowhere();
            Spot spot = from_padding(sweep, spot_of(sweep, SIZE, (int)(n - example * source)));
            spot.at = (int)example;
            return spot;
        },
        [=](int row, int k, const Spot& step) {
            const long long filter = (long long)group * above + step.at;
            return top + row < below ? w[(filter * below + top + row) * volume + k - step.at * volume] : 0.0f;
        },
        [=](const Spot& seen, const Spot& step) {
            const int place = result_of(sweep, seen, step);
            const long long map = ((long long)seen.at * sweep[GROUPS] + group) * above + step.at;
            return place < 0 ? 0.0f : delta[map * sweep[TARGET] + place];
        },
        [=](int row, int j, const Spot& seen, float sum) {
            if (top + row >= below) return;
            const long long example = seen.at, map = (example * sweep[GROUPS] + group) * below + top + row;
            float* const out = gradient + map * source + (begin + j - example * source);
            *out = add ? *out + sum : sum;
        });
}

// Grid (ceil(b places of x / 64), ceil(below / 64), groups). Twin: convolution.input_gradient.
extern "C" __global__ void convolution_input_gradient(const float* __restrict__ delta, const float* __restrict__ w,
                                                      float* gradient, const int* __restrict__ sweep, int b, int add)
{
    input_gradient<64, 64, 16>(delta, w, gradient, sweep, b, add);
}

// Grid (ceil(b places of x / 1024), ceil(below / 4), groups). Twin: convolution.input_gradient.
extern "C" __global__ void convolution_input_gradient_narrow(const float* __restrict__ delta, const float* __restrict__ w,
                                                             float* gradient, const int* __restrict__ sweep, int b, int add)
{
    input_gradient<4, 1024, 4>(delta, w, gradient, sweep, b, add);
}
