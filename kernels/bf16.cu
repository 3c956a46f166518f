// Factors of products as bfloat16: a float without its last 16 bits.
#include "four.cuh"

// Rounded to the nearest, of two equally near ones to the even one; beyond the largest that is infinity, NaN stays NaN.
__device__ __forceinline__ unsigned int half_of(float x)
{
    const unsigned int bits = __float_as_uint(x);
    return x != x ? 0x7fc0u : (bits + (0x7fffu + (bits >> 16 & 1u))) >> 16;
}

// y = x: x (rows, n), `ld` floats from row to row; y (rows, words): two numbers a word, the first one in the low half, words
// even and 2 words >= n; what is beyond n becomes zero. A thread has four numbers. Any grid. Twin: bf16.to_bf16.
extern "C" __global__ void to_bf16(const float* __restrict__ x, unsigned int* __restrict__ y, int rows, int n, int ld,
                                   int words)
{
    const int across = words / 2;
    const long long count = (long long)rows * across, threads = (long long)gridDim.x * THREADS;
    const bool straight = ld % WIDE == 0 && aligned(x);
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count; i += threads) {
        const long long row = i / across;
        const int c = (int)(i - row * across) * WIDE, have = n - c;
        const Four four = load(x + row * ld + c, have, straight && (have >= WIDE || have <= 0));
        y[2 * i] = half_of(four.at[0]) | half_of(four.at[1]) << 16;
        y[2 * i + 1] = half_of(four.at[2]) | half_of(four.at[3]) << 16;
    }
}
