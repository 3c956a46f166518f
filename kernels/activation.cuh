// What a unit makes of its sum z, what dropout makes of that, and the derivative, in terms of a = f(z). NaN stays NaN, which
// fmaxf would not do. `unit`: the constants of the layer, see README.md. Twin: nnlib/ops/activations.py.
#pragma once
#include "names.cuh"

__device__ __forceinline__ float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }

// log(1 + e^z), without an exponential that overflows.
__device__ __forceinline__ float softplus(float z) { return (z > 0 ? z : 0.0f) + log1pf(expf(-fabsf(z))); }

// Whether a unit by itself is anything but linear; SOFTMAX, RELU_MAX and LINEAR_MAX are done by row, in rowwise.cu.
__device__ __forceinline__ bool is_curved(int kind)
{
    return kind != LINEAR && kind != SOFTMAX && kind != RELU_MAX && kind != LINEAR_MAX;
}

__device__ __forceinline__ float activate(int kind, float z, const float* unit)
{
    switch (kind) {
    case SIGMOID: return 1 / (1 + expf(-z));
    case TANH: return tanhf(z);
    case RELU: return z < 0 ? 0.0f : z;
    case RELU6: return z < 0 ? 0.0f : z > 6 ? 6.0f : z;
    case LEAKY_RELU: return z < z * unit[SLOPE] ? z * unit[SLOPE] : z;
    case ELU: return z <= 0 ? expm1f(z) * unit[ALPHA] : z;
    case SELU: return (z <= 0 ? expm1f(z) * unit[ALPHA] : z) * unit[LAMBDA];
    case SOFTPLUS: return softplus(z);
    case SOFTSIGN: return z / (1 + fabsf(z));
    default: return z;
    }
}

__device__ __forceinline__ float derivative(int kind, float a, const float* unit)
{
    switch (kind) {
    case SIGMOID: return a * (1 - a);
    case TANH: return 1 - a * a;
    case RELU: return a > 0 ? 1.0f : 0.0f;
    case RELU6: return a > 0 && a < 6 ? 1.0f : 0.0f;
    case LEAKY_RELU: return a > 0 ? 1.0f : unit[SLOPE];
    case ELU: return a > 0 ? 1.0f : a + unit[ALPHA];
    case SELU: return a > 0 ? unit[LAMBDA] : a + unit[LAMBDA] * unit[ALPHA];
    case SOFTPLUS: return -expm1f(-a);
    case SOFTSIGN: return (1 - fabsf(a)) * (1 - fabsf(a));
    default: return 1;
    }
}

__device__ __forceinline__ float drop(float a, bool keep, const float* unit)
{
    return (keep ? a : unit[DROP_VALUE]) * unit[DROP_SCALE] + unit[DROP_SHIFT];
}
