// Batch normalization of maps: one mean and variance a channel, over the batch and the places. z (b, channels, places); a row
// is one channel of one example. Twin: nnlib/ops/batch_norm.py, of (b, C, S).
#include "names.cuh"

constexpr float EPSILON = 1e-5f;
constexpr float NEWEST = 0.1f;  // weight of the newest batch in the running averages
constexpr float OLDER = 0.9f;
constexpr int WARPS = THREADS / 32;

// The sum over the block, warp after warp, for all threads.
__device__ __forceinline__ float over_block(float own)
{
    __shared__ float sums[WARPS];
    for (int apart = 16; apart > 0; apart /= 2) own += __shfl_xor_sync(~0u, own, apart);
    __syncthreads();  // nobody still reads the sums before these
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = own;
    __syncthreads();
    float total = sums[0];
    for (int warp = 1; warp < WARPS; ++warp) total += sums[warp];
    return total;
}

// Calls take(i) for the numbers of channel blockIdx.x in part blockIdx.y: the examples part each .. part each + each - 1, a warp
// each of them in turn.
template <class Take> __device__ __forceinline__ void over_part(int b, int channels, int places, int each, Take take)
{
    const int first = blockIdx.y * each, end = b - first < each ? b : first + each;
    for (int example = first + threadIdx.x / 32; example < end; example += WARPS) {
        const long long row = ((long long)example * channels + blockIdx.x) * places;
        for (int j = threadIdx.x % 32; j < places; j += 32) take(row + j);
    }
}

// Calls take(i, channel) for all numbers of all rows, a warp a row: any grid.
template <class Take> __device__ __forceinline__ void over_rows(long long rows, int channels, int places, Take take)
{
    const long long warps = (long long)gridDim.x * WARPS;
    for (long long row = (long long)blockIdx.x * WARPS + threadIdx.x / 32; row < rows; row += warps) {
        const int channel = (int)(row % channels);
        for (int j = threadIdx.x % 32; j < places; j += 32) take(row * places + j, channel);
    }
}

// means, squares [part, channel] = the mean of the part's numbers, and the sum of the squares of their distances from it.
// Grid (channels, parts); the first half of map_statistics.
extern "C" __global__ void map_moments(const float* __restrict__ z, float* means, float* squares, int b, int channels, int places,
                                       int each)
{
    const int first = blockIdx.y * each, examples = b - first < each ? b - first : each;
    float own = 0;
    over_part(b, channels, places, each, [&](long long i) { own += z[i]; });
    const float sum = over_block(own), mean = examples > 0 ? sum / ((float)examples * places) : 0.0f;
    own = 0;
    over_part(b, channels, places, each, [&](long long i) { own += (z[i] - mean) * (z[i] - mean); });
    const float square = over_block(own);
    if (threadIdx.x != 0) return;
    means[(long long)blockIdx.y * channels + blockIdx.x] = mean;
    squares[(long long)blockIdx.y * channels + blockIdx.x] = square;
}

// From the parts of map_moments each channel's mean, as center, and inverse = 1 / sqrt(its variance + EPSILON); the running
// `mean` and `variance` take in the new ones, as in batch_norm. Parts are joined one after the other (Chan, Golub and LeVeque
// 1979). A thread a channel, grid ceil(channels / 256). Twin: batch_norm.forward.
extern "C" __global__ void map_statistics(const float* __restrict__ means, const float* __restrict__ squares, float* center,
                                          float* inverse, float* mean, float* variance, int b, int channels, int places, int each)
{
    const int channel = blockIdx.x * THREADS + threadIdx.x;
    if (channel >= channels || b <= 0) return;
    float middle = 0, square = 0, count = 0;
    for (int first = 0, part = 0; first < b; first += each, ++part) {
        const float own = (float)(b - first < each ? b - first : each) * places, whole = count + own;
        const float apart = means[(long long)part * channels + channel] - middle;
        middle += apart * (own / whole);
        square += squares[(long long)part * channels + channel] + apart * apart * (count * own / whole);
        count = whole;
    }
    const float spread = square / count;
    center[channel] = middle;
    inverse[channel] = 1 / sqrtf(spread + EPSILON);
    mean[channel] = mean[channel] * OLDER + NEWEST * middle;
    variance[channel] = variance[channel] * OLDER + NEWEST * (count > 1 ? square / (count - 1) : spread);
}

// normal = (z - center) inverse, z = normal scale + bias. rows = b channels, any grid. Twin: batch_norm.forward.
extern "C" __global__ void map_norm(float* z, float* __restrict__ normal, const float* __restrict__ center,
                                    const float* __restrict__ inverse, const float* __restrict__ scale,
                                    const float* __restrict__ bias, long long rows, int channels, int places)
{
    over_rows(rows, channels, places, [=](long long i, int channel) {
        const float normalized = (z[i] - center[channel]) * inverse[channel];
        normal[i] = normalized;
        z[i] = normalized * scale[channel] + bias[channel];
    });
}

// Prediction: z = (z - mean) (scale / sqrt(variance + EPSILON)) + bias. Any grid. Twin: batch_norm.inference.
extern "C" __global__ void map_norm_inference(float* z, const float* __restrict__ scale, const float* __restrict__ bias,
                                              const float* __restrict__ mean, const float* __restrict__ variance, long long rows,
                                              int channels, int places)
{
    over_rows(rows, channels, places, [=](long long i, int channel) {
        z[i] = (z[i] - mean[channel]) * (scale[channel] / sqrtf(variance[channel] + EPSILON)) + bias[channel];
    });
}

// sums [part, channel] = the sum of the part's x, and products that of x y, if y is not null; column_sums adds the parts up. Grid
// (channels, parts). Twin: x.sum(axis=(0, 2)).
extern "C" __global__ void map_sums(const float* __restrict__ x, const float* __restrict__ y, float* sums, float* products, int b,
                                    int channels, int places, int each)
{
    float own = 0, own_product = 0;
    over_part(b, channels, places, each, [&](long long i) {
        own += x[i];
        if (y) own_product += x[i] * y[i];
    });
    const float sum = over_block(own), product = over_block(own_product);
    if (threadIdx.x != 0) return;
    sums[(long long)blockIdx.y * channels + blockIdx.x] = sum;
    if (y) products[(long long)blockIdx.y * channels + blockIdx.x] = product;
}

// delta = dLoss/d(sums) from delta = dLoss/d(what map_norm gave), in place: (delta - bias_gradient / count - normal
// scale_gradient / count) scale inverse, count = b places. Any grid. Twin: batch_norm.backward.
extern "C" __global__ void map_norm_backward(float* delta, const float* __restrict__ normal, const float* __restrict__ inverse,
                                             const float* __restrict__ scale, const float* __restrict__ scale_gradient,
                                             const float* __restrict__ bias_gradient, long long rows, int channels, int places)
{
    const float count = (float)(rows / channels) * places;
    over_rows(rows, channels, places, [=](long long i, int channel) {
        const float mean = bias_gradient[channel] / count, mean_normal = scale_gradient[channel] / count;
        delta[i] = (delta[i] - mean - normal[i] * mean_normal) * (scale[channel] * inverse[channel]);
    });
}
