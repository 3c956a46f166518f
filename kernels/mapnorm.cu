// Batch normalization of maps: one mean and variance a channel, over the batch and the places. z (b, channels, places); a row
// is one channel of one example. Of a batch that is cut into shards, units without maps are channels of one place. Twin:
// nnlib/ops/batch_norm.py, of (b, C, S).
#include "names.cuh"

constexpr float EPSILON = 1e-5f;
constexpr float NEWEST = 0.1f;  // weight of the newest batch in the running averages
constexpr float OLDER = 0.9f;
constexpr int WARPS = THREADS / 32;
constexpr int SHARDS = 8;  // of a batch that is cut

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
// each of them in turn, or of single places a thread.
template <class Take> __device__ __forceinline__ void over_part(int b, int channels, int places, int each, Take take)
{
    const int first = blockIdx.y * each, end = b - first < each ? b : first + each;
    if (places == 1) {
        for (int example = first + threadIdx.x; example < end; example += THREADS) take((long long)example * channels + blockIdx.x);
        return;
    }
    for (int example = first + threadIdx.x / 32; example < end; example += WARPS) {
        const long long row = ((long long)example * channels + blockIdx.x) * places;
        for (int j = threadIdx.x % 32; j < places; j += 32) take(row + j);
    }
}

// Calls take(i, channel) for all numbers of all rows, a warp a row, or of single places a thread: any grid.
template <class Take> __device__ __forceinline__ void over_rows(long long rows, int channels, int places, Take take)
{
    if (places == 1) {
        const long long threads = (long long)gridDim.x * THREADS;
        for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < rows; i += threads) take(i, (int)(i % channels));
        return;
    }
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

struct Moments { float mean, square, count; };  // square: the sum of the squares of the distances from the mean

// Takes the moments of other numbers in, which may be none (Chan, Golub and LeVeque 1979). Twin: batch_norm.Moments.
__device__ __forceinline__ void take_in(Moments& own, const Moments& other)
{
    if (!(other.count > 0)) return;
    const float whole = own.count + other.count, apart = other.mean - own.mean;
    own.mean += apart * (other.count / whole);
    own.square += other.square + apart * apart * (own.count * other.count / whole);
    own.count = whole;
}

// The moments of a channel from the parts of map_moments, one after the other.
__device__ __forceinline__ Moments join_in_turn(const float* means, const float* squares, int channel, int b, int channels,
                                                int places, int each)
{
    Moments found = {0, 0, 0};
    for (int first = 0, part = 0; first < b; first += each, ++part) {
        const float count = (float)(b - first < each ? b - first : each) * places;
        take_in(found, {means[(long long)part * channels + channel], squares[(long long)part * channels + channel], count});
    }
    return found;
}

// out (2, channels) = each channel's mean, and the sum of the squares of the distances from it, from the parts of map_moments. A
// thread a channel, grid ceil(channels / 256). Twin: batch_norm.moments_of.
extern "C" __global__ void map_moments_join(const float* __restrict__ means, const float* __restrict__ squares,
                                            float* __restrict__ out, int b, int channels, int places, int each)
{
    const int channel = blockIdx.x * THREADS + threadIdx.x;
    if (channel >= channels || b <= 0) return;
    const Moments found = join_in_turn(means, squares, channel, b, channels, places, each);
    out[channel] = found.mean;
    out[channels + channel] = found.square;
}

// out (2, channels) = the same of all numbers of `count` neighbouring parts (1, 2, 4 or 8), each (2, channels), merged in the
// order of the tree (tree.cuh). The parts are of `each` examples of a batch of `examples`, the first of them number `first`; the
// last ones may have fewer or none, of which nothing is read. A thread a channel, grid ceil(channels / 256). Twin: tree_sum of
// batch_norm.Moments.
extern "C" __global__ void join_moments(const float* __restrict__ parts, int count, float* __restrict__ out, int channels, int first,
                                        int each, int examples, int places)
{
    const int channel = blockIdx.x * THREADS + threadIdx.x;
    if (channel >= channels) return;
    Moments part[SHARDS];
#pragma unroll
    for (int s = 0; s < SHARDS; ++s) {
        const long long left = s < count ? (long long)examples - (long long)(first + s) * each : 0;
        const float* const own = parts + 2LL * s * channels + channel;
        part[s] = {0, 0, 0};
        if (left > 0) part[s] = {own[0], own[channels], (float)(left < each ? left : each) * places};
    }
#pragma unroll
    for (int step = 1; step < SHARDS; step *= 2)
#pragma unroll
        for (int s = 0; s < SHARDS; s += 2 * step) take_in(part[s], part[s + step]);
    out[channel] = part[0].mean;
    out[channels + channel] = part[0].square;
}

// From the parts of map_moments each channel's mean, as center, and inverse = 1 / sqrt(its variance + EPSILON); the running
// `mean` and `variance` take in the new ones, as in batch_norm. Parts are joined one after the other (Chan, Golub and LeVeque
// 1979). A thread a channel, grid ceil(channels / 256). Twin: batch_norm.forward.
extern "C" __global__ void map_statistics(const float* __restrict__ means, const float* __restrict__ squares, float* center,
                                          float* inverse, float* mean, float* variance, int b, int channels, int places, int each)
{
    const int channel = blockIdx.x * THREADS + threadIdx.x;
    if (channel >= channels || b <= 0) return;
    const Moments found = join_in_turn(means, squares, channel, b, channels, places, each);
    const float spread = found.square / found.count;
    center[channel] = found.mean;
    inverse[channel] = 1 / sqrtf(spread + EPSILON);
    mean[channel] = mean[channel] * OLDER + NEWEST * found.mean;
    variance[channel] = variance[channel] * OLDER + NEWEST * (found.count > 1 ? found.square / (found.count - 1) : spread);
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
// scale_gradient / count) scale inverse, count = examples places, of the whole batch, of which these rows may be a shard. Any grid.
// Twin: batch_norm.normalize_back.
extern "C" __global__ void map_norm_backward(float* delta, const float* __restrict__ normal, const float* __restrict__ inverse,
                                             const float* __restrict__ scale, const float* __restrict__ scale_gradient,
                                             const float* __restrict__ bias_gradient, int examples, long long rows, int channels,
                                             int places)
{
    const float count = (float)examples * places;
    over_rows(rows, channels, places, [=](long long i, int channel) {
        const float mean = bias_gradient[channel] / count, mean_normal = scale_gradient[channel] / count;
        delta[i] = (delta[i] - mean - normal[i] * mean_normal) * (scale[channel] * inverse[channel]);
    });
}
