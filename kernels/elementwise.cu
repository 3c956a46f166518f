// Arithmetic on arrays of n floats, in place: the vector functions of NPP that the first GPU version of this network used
// (`nppsMulC_32f_I` and its like), under their names. Any grid, any block. Twins: the NumPy functions that are named.
#include "four.cuh"

// x[i] = f(x[i]).
template <class F> __device__ __forceinline__ void each(float* x, long long n, F f)
{
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, threads = (long long)gridDim.x * blockDim.x;
    const bool wide = aligned(x);
    for (long long at = first * WIDE; at < n; at += threads * WIDE) {
        const int have = n - at < WIDE ? (int)(n - at) : WIDE;
        const bool whole = wide && have == WIDE;
        Four four = load(x + at, have, whole);
        for (int k = 0; k < WIDE; ++k) four.at[k] = f(four.at[k]);
        store(x + at, four, have, whole);
    }
}

// x[i] = f(x[i], y[i]).
template <class F> __device__ __forceinline__ void each(float* x, const float* y, long long n, F f)
{
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, threads = (long long)gridDim.x * blockDim.x;
    const bool wide = aligned(x) && aligned(y);
    for (long long at = first * WIDE; at < n; at += threads * WIDE) {
        const int have = n - at < WIDE ? (int)(n - at) : WIDE;
        const bool whole = wide && have == WIDE;
        Four four = load(x + at, have, whole);
        const Four other = load(y + at, have, whole);
        for (int k = 0; k < WIDE; ++k) four.at[k] = f(four.at[k], other.at[k]);
        store(x + at, four, have, whole);
    }
}

// x = c: numpy.copyto.
extern "C" __global__ void set(float* x, float c, long long n)
{
    each(x, n, [c](float) { return c; });
}

// x += c, x -= c, x *= c, x /= c: numpy.add, subtract, multiply, divide.
extern "C" __global__ void add_c(float* x, float c, long long n)
{
    each(x, n, [c](float a) { return a + c; });
}

extern "C" __global__ void sub_c(float* x, float c, long long n)
{
    each(x, n, [c](float a) { return a - c; });
}

extern "C" __global__ void mul_c(float* x, float c, long long n)
{
    each(x, n, [c](float a) { return a * c; });
}

extern "C" __global__ void div_c(float* x, float c, long long n)
{
    each(x, n, [c](float a) { return a / c; });
}

// x += y, x -= y, x *= y, x /= y: the same functions. y may be x.
extern "C" __global__ void add(float* x, const float* y, long long n)
{
    each(x, y, n, [](float a, float b) { return a + b; });
}

extern "C" __global__ void sub(float* x, const float* y, long long n)
{
    each(x, y, n, [](float a, float b) { return a - b; });
}

extern "C" __global__ void mul(float* x, const float* y, long long n)
{
    each(x, y, n, [](float a, float b) { return a * b; });
}

extern "C" __global__ void div_(float* x, const float* y, long long n)
{
    each(x, y, n, [](float a, float b) { return a / b; });
}

// e^x, log x, x^2, the root of x, |x|: numpy.exp, log, square, sqrt, abs.
extern "C" __global__ void exp_(float* x, long long n)
{
    each(x, n, [](float a) { return expf(a); });
}

extern "C" __global__ void ln(float* x, long long n)
{
    each(x, n, [](float a) { return logf(a); });
}

extern "C" __global__ void sqr(float* x, long long n)
{
    each(x, n, [](float a) { return a * a; });
}

extern "C" __global__ void sqrt_(float* x, long long n)
{
    each(x, n, [](float a) { return sqrtf(a); });
}

extern "C" __global__ void abs_(float* x, long long n)
{
    each(x, n, [](float a) { return fabsf(a); });
}

// What is below the level becomes the level, NaN stays NaN: numpy.maximum.
extern "C" __global__ void threshold_lt(float* x, float level, long long n)
{
    each(x, n, [level](float a) { return a < level ? level : a; });
}

// mul_c for `count` arrays in one launch: the blocks of row y of the grid share array y. Grid (any, count).
extern "C" __global__ void multi_mul_c(float* const* arrays, const long long* sizes, int count, float c)
{
    const int array = blockIdx.y;
    if (array >= count) return;
    each(arrays[array], sizes[array], [c](float a) { return a * c; });
}
