// Local response normalization across channels. x, y and deltas (b, channels, places); `half` = (n - 1) / 2 channels before and
// `rest` = n / 2 behind are summed with the own one; share = alpha / n. A thread has one number, any grid.
// Twin: nnlib/ops/response_norm.py.
#include "names.cuh"

// k + share sum x^2 over the channels around one; `at` points at x there.
__device__ __forceinline__ float scale_at(const float* at, int channel, int channels, int places, int half, int rest, float k,
                                          float share)
{
    const int low = channel < half ? -channel : -half, high = channels - 1 - channel < rest ? channels - 1 - channel : rest;
    float sum = 0;
    for (int j = low; j <= high; ++j) sum = fmaf(at[(long long)j * places], at[(long long)j * places], sum);
    return k + share * sum;
}

// scale^-beta; of the usual 3/4 by roots, which are exact to a rounding each.
__device__ __forceinline__ float power(float scale, float beta)
{
    return beta == 0.75f ? 1 / (sqrtf(scale) * sqrtf(sqrtf(scale))) : powf(scale, -beta);
}

// y = x scale^-beta, scale = k + share sum x^2. Twin: response_norm.forward.
extern "C" __global__ void response_norm(const float* __restrict__ x, float* __restrict__ y, long long count, int channels,
                                         int places, int half, int rest, float k, float share, float beta)
{
    const long long threads = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count; i += threads) {
        const int channel = (int)(i / places % channels);
        y[i] = x[i] * power(scale_at(x + i, channel, channels, places, half, rest, k, share), beta);
    }
}

// below = dLoss/dx from delta = dLoss/dy, added to what is there if `add`: delta scale^-beta - 2 share beta x sum over the channels
// that see this one of delta x scale^(-beta - 1). Twin: response_norm.backward.
extern "C" __global__ void response_norm_backward(const float* __restrict__ x, const float* __restrict__ delta, float* below,
                                                  long long count, int channels, int places, int half, int rest, float k,
                                                  float share, float beta, int add)
{
    const long long threads = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count; i += threads) {
        const int channel = (int)(i / places % channels);
        const int low = channel < rest ? -channel : -rest, high = channels - 1 - channel < half ? channels - 1 - channel : half;
        float seen = 0, own = 0;
        for (int j = low; j <= high; ++j) {
            const long long at = i + (long long)j * places;
            const float scale = scale_at(x + at, channel + j, channels, places, half, rest, k, share);
            const float shrunk = delta[at] * power(scale, beta);
            seen += shrunk / scale * x[at];
            if (j == 0) own = shrunk;
        }
        const float found = own - 2 * share * beta * (seen * x[i]);
        below[i] = add ? below[i] + found : found;
    }
}
