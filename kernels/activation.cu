// Bias, activation and dropout of whole layers, forwards and backwards. Matrices (b, n) without gaps, count = b n. Any grid: a
// thread takes RUN elements in a row, and so do those behind it, until there are none. `before`: how many elements of the mask
// come before the first, which belong to examples that are not here. Twin: nnlib/ops/activations.py.
#include "names.cuh"
#include "random.cuh"
#include "activation.cuh"
#include "broken.cuh"

constexpr int RUN = 8;  // as many as one philox() gives random numbers

__device__ __forceinline__ long long first_run() { return ((long long)blockIdx.x * THREADS + threadIdx.x) * RUN; }

__device__ __forceinline__ long long next_run() { return (long long)gridDim.x * THREADS * RUN; }

__device__ __forceinline__ bool in_fours(const float* place, int some)
{
    return some == RUN && (unsigned long long)place % 16 == 0;
}

__device__ __forceinline__ void load(float* x, const float* from, int some)
{
    if (in_fours(from, some)) {
        const float4 head = reinterpret_cast<const float4*>(from)[0], tail = reinterpret_cast<const float4*>(from)[1];
        x[0] = head.x, x[1] = head.y, x[2] = head.z, x[3] = head.w;
        x[4] = tail.x, x[5] = tail.y, x[6] = tail.z, x[7] = tail.w;
        return;
    }
#pragma unroll
    for (int k = 0; k < RUN; ++k) x[k] = k < some ? from[k] : 0.0f;
}

__device__ __forceinline__ void store(const float* x, float* to, int some)
{
    if (in_fours(to, some)) {
        reinterpret_cast<float4*>(to)[0] = make_float4(x[0], x[1], x[2], x[3]);
        reinterpret_cast<float4*>(to)[1] = make_float4(x[4], x[5], x[6], x[7]);
        return;
    }
#pragma unroll
    for (int k = 0; k < RUN; ++k)
        if (k < some) to[k] = x[k];
}

// x[k] += row[column of element first + k].
__device__ __forceinline__ void add_by_column(float* x, const float* row, long long first, int n, int some)
{
    int column = (int)(first % n);
#pragma unroll
    for (int k = 0; k < RUN; ++k) {
        if (k < some) x[k] += row[column];
        column = column + 1 == n ? 0 : column + 1;
    }
}

// Bit k of the result: whether the dropout of the step keeps element k of a run of its mask.
__device__ __forceinline__ unsigned int kept_run(long long run, float p, unsigned long long key, unsigned long long number)
{
    const Words words = philox(key, number, run + 1);
    unsigned int bits = 0;
#pragma unroll
    for (int k = 0; k < RUN; ++k)
        if (as_uniform((unsigned int)(words.word[k / 2] >> k % 2 * 32)) >= p) bits |= 1u << k;
    return bits;
}

// Bit k of the result: whether element first + k of the mask is kept.
__device__ __forceinline__ unsigned int kept(long long first, float p, unsigned long long key, const long long* step,
                                             int layers, int layer)
{
    const unsigned long long number = step[0] * layers + layer;
    const int past = (int)(first % RUN);
    const unsigned int bits = kept_run(first / RUN, p, key, number);
    return past ? bits >> past | kept_run(first / RUN + 1, p, key, number) << (RUN - past) : bits;
}

__device__ __forceinline__ void drop_run(float* x, unsigned int keep, const float* unit)
{
#pragma unroll
    for (int k = 0; k < RUN; ++k) x[k] = drop(x[k], keep >> k & 1, unit);
}

// z = f(z + bias) in place, f being the identity for what rowwise.cu does. bias (n) or null. `sums` is null or gets
// z + bias, `out` is null or gets z after dropout. broken (1) or null: see broken.cuh; of z.
// Twins: activations.activate and activations.apply_dropout.
extern "C" __global__ void bias_activation_dropout(float* __restrict__ z, float* __restrict__ out,
                                                   const float* __restrict__ bias, float* __restrict__ sums,
                                                   long long count, int n, int kind, const float* __restrict__ unit,
                                                   unsigned long long key, const long long* __restrict__ step,
                                                   int layers, int layer, long long before, int* broken)
{
    for (long long first = first_run(); first < count; first += next_run()) {
        const int some = count - first < RUN ? (int)(count - first) : RUN;
        float x[RUN];
        load(x, z + first, some);
        if (bias) add_by_column(x, bias, first, n, some);
        if (sums) store(x, sums + first, some);
#pragma unroll
        for (int k = 0; k < RUN; ++k) x[k] = activate(kind, x[k], unit);
        if (!all_finite<RUN>(x)) mark_broken(broken, step);
        store(x, z + first, some);
        if (!out) continue;
        drop_run(x, kept(before + first, unit[DROPOUT], key, step, layers, layer), unit);
        store(x, out + first, some);
    }
}

// out = a after dropout, for layers that rowwise.cu activates and for dense inputs. Twin: activations.apply_dropout.
extern "C" __global__ void dropout(const float* __restrict__ a, float* __restrict__ out, long long count,
                                   const float* __restrict__ unit, unsigned long long key,
                                   const long long* __restrict__ step, int layers, int layer,
                                   long long before)
{
    for (long long first = first_run(); first < count; first += next_run()) {
        const int some = count - first < RUN ? (int)(count - first) : RUN;
        float x[RUN];
        load(x, a + first, some);
        drop_run(x, kept(before + first, unit[DROPOUT], key, step, layers, layer), unit);
        store(x, out + first, some);
    }
}

// delta in: dLoss/d(what the next layers see), out: dLoss/dz, but for what rowwise_backward does. `dropped`: there was
// dropout, whose mask is drawn again, or with `unmasked`, as in DSSTNE, guessed from `out`, what the layer gave after it.
// penalty (n) or null: of sparseness. `a` is what the layer gave before dropout; only one of `a` and `out` is read.
// Twin: backward._through_layer.
extern "C" __global__ void activation_dropout_backward(float* __restrict__ delta, const float* __restrict__ a,
                                                       const float* __restrict__ out,
                                                       const float* __restrict__ penalty, long long count, int n,
                                                       int kind, const float* __restrict__ unit, int dropped,
                                                       int unmasked, unsigned long long key,
                                                       const long long* __restrict__ step, int layers, int layer,
                                                       long long before)
{
    const bool guessed = dropped && unmasked;
    const float scale = dropped ? unit[DROP_SCALE] : 1.0f;
    for (long long first = first_run(); first < count; first += next_run()) {
        const int some = count - first < RUN ? (int)(count - first) : RUN;
        float x[RUN], y[RUN];
        load(x, delta + first, some);
        if (is_curved(kind)) load(y, (guessed ? out : a) + first, some);
        if (dropped && !guessed) {
            const unsigned int keep = kept(before + first, unit[DROPOUT], key, step, layers, layer);
#pragma unroll
            for (int k = 0; k < RUN; ++k) x[k] *= keep >> k & 1 ? scale : 0.0f;
        }
        if (penalty) add_by_column(x, penalty, first, n, some);
#pragma unroll
        for (int k = 0; k < RUN; ++k)
            if (guessed && kind == TANH)
                x[k] *= scale * (1 - y[k] / scale * (y[k] / scale));
            else if (is_curved(kind))
                x[k] *= derivative(kind, y[k], unit);
        store(x, delta + first, some);
    }
}

// z[i, j] += bias[j]; z (b, n), `ld` floats from row to row. Any grid.
extern "C" __global__ void add_bias(float* __restrict__ z, const float* __restrict__ bias, int b, int n, int ld)
{
    if (n <= 0) return;
    const long long own = (long long)blockIdx.x * THREADS + threadIdx.x, stride = (long long)gridDim.x * THREADS;
    const int across = (int)(stride % n);
    int column = (int)(own % n);
    for (long long row = own / n; row < b; row += stride / n) {  // one division, not one an element
        z[row * ld + column] += bias[column];
        column += across;
        if (column >= n) column -= n, ++row;
    }
}
