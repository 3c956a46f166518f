// Batch normalization of the sums of a layer (Ioffe and Szegedy 2015). Twin: nnlib/ops/batch_norm.py.
#include "columns.cuh"

constexpr float EPSILON = 1e-5f;
constexpr float NEWEST = 0.1f;  // weight of the newest batch in the running averages
constexpr float OLDER = 0.9f;
constexpr int TILE = AHEAD * LANES;  // rows that a block reads together

// Training: from z (b, n), the sums without bias, the mean m and the variance v of each column over the batch; then
// normal = (z - m) / sqrt(v + EPSILON) and z = normal scale + bias, and inverse = 1 / sqrt(v + EPSILON). The running
// `mean` and `variance` (that of the population, v b / (b - 1)) take in the new ones. Two passes, as the difference
// of two large sums would lose the variance. normal (b, n); inverse, scale, bias, mean, variance (n). An empty batch
// changes nothing. Grid ceil(n / 32). Twin: batch_norm.forward.
extern "C" __global__ void batch_norm(float* z, float* normal, float* inverse, const float* __restrict__ scale,
                                      const float* __restrict__ bias, float* mean, float* variance, int b, int n)
{
    if (b <= 0) return;
    const int column = blockIdx.x * 32 + threadIdx.x % 32, lane = threadIdx.x / 32;
    const bool inside = column < n;
    const int rows = inside ? b : 0;  // all threads meet at the barriers
    const float* const from = z + column;
    float part[AHEAD], own = 0;

    for (int first = lane; first < rows; first += TILE) {
        load(part, from, first, rows, n, 0);
        for (int j = 0; j < AHEAD; ++j) own += part[j];
    }
    const float center = over_lanes(own) / b;
    own = 0;
    for (int first = lane; first < rows; first += TILE) {
        load(part, from, first, rows, n, center);
        for (int j = 0; j < AHEAD; ++j) own += (part[j] - center) * (part[j] - center);
    }
    const float spread = over_lanes(own) / b;
    if (!inside) return;
    const float factor = 1 / sqrtf(spread + EPSILON), scaled = scale[column], shift = bias[column];
    for (int first = lane; first < rows; first += TILE) {
        load(part, from, first, rows, n, 0);
        for (int j = 0; j < AHEAD && first + j * LANES < rows; ++j) {
            const long long at = (long long)(first + j * LANES) * n + column;
            const float normalized = (part[j] - center) * factor;
            normal[at] = normalized;
            z[at] = normalized * scaled + shift;
        }
    }
    if (lane != 0) return;
    inverse[column] = factor;
    mean[column] = mean[column] * OLDER + NEWEST * center;
    variance[column] = variance[column] * OLDER + NEWEST * (spread * ((float)b / (float)max(1, b - 1)));
}

// Prediction: z = (z - mean) (scale / sqrt(variance + EPSILON)) + bias in place, by the running averages.
// z (b, n), `ld` floats from row to row; the others (n). A block takes tiles of 32 columns and TILE rows, number
// blockIdx.x, += gridDim.x: any grid. Twin: batch_norm.inference.
extern "C" __global__ void batch_norm_inference(float* z, const float* __restrict__ scale,
                                                const float* __restrict__ bias, const float* __restrict__ mean,
                                                const float* __restrict__ variance, int b, int n, int ld)
{
    const int across = (n + 31) / 32;
    const long long tiles = (long long)across * ((b + TILE - 1) / TILE);
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int column = (int)(tile % across) * 32 + threadIdx.x % 32;
        const int first = (int)(tile / across) * TILE + threadIdx.x / 32;
        if (column >= n) continue;
        const float center = mean[column], shift = bias[column];
        const float factor = scale[column] / sqrtf(variance[column] + EPSILON);
        float part[AHEAD];
        load(part, z + column, first, b, ld, 0);
        for (int j = 0; j < AHEAD && first + j * LANES < b; ++j)
            z[(long long)(first + j * LANES) * ld + column] = (part[j] - center) * factor + shift;
    }
}

// From delta = dLoss/d(what batch_norm gave) (b, n): the gradients of bias, the column's sum of delta, and of scale,
// that of delta normal; then, in place, dLoss/d(sums) =
// (delta - bias_gradient / b - normal scale_gradient / b) scale inverse. Grid ceil(n / 32). Twin: batch_norm.backward.
extern "C" __global__ void batch_norm_backward(float* delta, const float* __restrict__ normal,
                                               const float* __restrict__ inverse, const float* __restrict__ scale,
                                               float* scale_gradient, float* bias_gradient, int b, int n)
{
    const int column = blockIdx.x * 32 + threadIdx.x % 32, lane = threadIdx.x / 32;
    const bool inside = column < n;
    const int rows = inside ? b : 0;
    float part[AHEAD], part_normal[AHEAD], own = 0, own_normal = 0;

    for (int first = lane; first < rows; first += TILE) {
        load(part, delta + column, first, rows, n, 0);
        load(part_normal, normal + column, first, rows, n, 0);
        for (int j = 0; j < AHEAD; ++j) {
            own += part[j];
            own_normal += part[j] * part_normal[j];
        }
    }
    const float total = over_lanes(own), total_normal = over_lanes(own_normal);
    if (!inside) return;
    const float mean = total / b, mean_normal = total_normal / b, factor = scale[column] * inverse[column];
    for (int first = lane; first < rows; first += TILE) {
        load(part, delta + column, first, rows, n, 0);
        load(part_normal, normal + column, first, rows, n, 0);
        for (int j = 0; j < AHEAD && first + j * LANES < rows; ++j)
            delta[(long long)(first + j * LANES) * n + column] =
                (part[j] - mean - part_normal[j] * mean_normal) * factor;
    }
    if (lane != 0) return;
    bias_gradient[column] = total;
    scale_gradient[column] = total_normal;
}
