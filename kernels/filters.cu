// The gradient of a convolution's weights, straight from where maps lie: see convolution.cu. Twin: nnlib/ops/convolution.py.
#include "gathered.cuh"

// parts[part] (groups above, below volume) = the gradient from the examples part each .. part each + each - 1; column_sums adds
// the parts up. Grid (ceil(below volume / 64), ceil(above / 64) parts, groups). Twin: convolution.weight_gradient.
extern "C" __global__ void convolution_weight_gradient(const float* __restrict__ x, const float* __restrict__ delta, float* parts,
                                                       const int* __restrict__ sweep, int b, int each)
{
    const int below = sweep[BELOW], above = sweep[ABOVE], target = sweep[TARGET], volume = sweep[VOLUME];
    const int fan_in = below * volume, tall = (above + 63) / 64, group = blockIdx.z, begin = blockIdx.x * 64;
    const int top = blockIdx.y % tall * 64, part = blockIdx.y / tall, first = part * each;
    const int examples = b - first < each ? b - first : each;
    multiply<64, 64, 16>(
        examples * target,
        [=](int k) {
            const int example = k / target;
            Spot spot = first_of(sweep, spot_of(sweep, OUT, k - example * target));
            spot.at = first + example;
            return spot;
        },
        [=](int j) {
            if (begin + j >= fan_in) return nowhere();
            Spot spot = distance_of(sweep, spot_of(sweep, KERNEL, (begin + j) % volume));
            spot.at = (begin + j) / volume;
            return spot;
        },
        [=](int row, int k, const Spot& from) {
            const long long map = ((long long)from.at * sweep[GROUPS] + group) * above + top + row;
            return top + row < above ? delta[map * target + k - (from.at - first) * target] : 0.0f;
        },
        [=](const Spot& step, const Spot& from) {
            const int place = place_in(sweep, from.z + step.z, from.y + step.y, from.x + step.x);
            const long long map = ((long long)from.at * sweep[GROUPS] + group) * below + step.at;
            return place < 0 ? 0.0f : x[map * sweep[SOURCE] + place];
        },
        [=](int row, int j, const Spot&, float sum) {
            if (top + row >= above) return;
            const long long filter = ((long long)part * sweep[GROUPS] + group) * above + top + row;
            parts[filter * fan_in + begin + j] = sum;
        });
}

// The same where groups have few channels: gradient (groups above, below volume), added to what is there if `add`. A block has
// one number, of filter blockIdx.x and weight blockIdx.y of it; its threads stand on neighbouring places, in as many lanes of
// examples as there is room for, and halves are added until one sum is left. Grid (groups above, below volume).
// Twin: convolution.weight_gradient.
extern "C" __global__ void convolution_weight_gradient_narrow(const float* __restrict__ x, const float* __restrict__ delta,
                                                              float* gradient, const int* __restrict__ sweep, int b, int add)
{
    __shared__ float sums[THREADS];
    const int filter = blockIdx.x, weight = blockIdx.y, t = threadIdx.x, target = sweep[TARGET], source = sweep[SOURCE];
    const int below = sweep[BELOW], volume = sweep[VOLUME], channels = sweep[GROUPS] * below;
    const int channel = filter / sweep[ABOVE] * below + weight / volume;
    const Spot step = distance_of(sweep, spot_of(sweep, KERNEL, weight % volume));
    const long long filters = (long long)sweep[GROUPS] * sweep[ABOVE];
    const int across = target < THREADS ? (target + 31) / 32 * 32 : THREADS, lanes = THREADS / across;
    float own = 0;
    for (int p = t % across; p < target && t < lanes * across; p += across) {
        const Spot from = first_of(sweep, spot_of(sweep, OUT, p));
        const int place = place_in(sweep, from.z + step.z, from.y + step.y, from.x + step.x);
        if (place < 0) continue;
#pragma unroll 4
        for (int example = t / across; example < b; example += lanes)
            own = fmaf(x[((long long)example * channels + channel) * source + place],
                       delta[(example * filters + filter) * target + p], own);
    }
    sums[t] = own;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) sums[t] += sums[t + half];
    }
    if (t != 0) return;
    float* const out = gradient + (long long)filter * gridDim.y + weight;
    *out = add ? *out + sums[0] : sums[0];
}
