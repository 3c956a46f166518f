// Philox4x64-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), as NumPy's bit generator of that name
// counts and cuts it: `uniform(key, number, index)` is element `index` of
// Generator(Philox(key=key, counter=number << 128)).random(dtype=float32), key below 2^64.
#pragma once

struct Words { unsigned long long word[4]; };

__device__ __forceinline__ Words philox(unsigned long long key, unsigned long long number, unsigned long long block)
{
    unsigned long long a = block, b = 0, c = number, d = 0, key_low = key, key_high = 0;
    for (int round = 0; round < 10; ++round) {
        const unsigned long long low0 = a * 0xD2E7470EE14C6C93ull, high0 = __umul64hi(a, 0xD2E7470EE14C6C93ull);
        const unsigned long long low1 = c * 0xCA5A826395121157ull, high1 = __umul64hi(c, 0xCA5A826395121157ull);
        a = high1 ^ b ^ key_low;
        b = low1;
        c = high0 ^ d ^ key_high;
        d = low0;
        key_low += 0x9E3779B97F4A7C15ull;
        key_high += 0xBB67AE8584CAA73Bull;
    }
    Words words = {{a, b, c, d}};
    return words;
}

__device__ __forceinline__ float as_uniform(unsigned int bits) { return (float)(bits >> 8) * (1.0f / 16777216.0f); }

// NumPy counts blocks from 1 and gives the low half of each word first: eight numbers a block.
__device__ __forceinline__ float uniform(unsigned long long key, unsigned long long number, unsigned long long index)
{
    const Words words = philox(key, number, index / 8 + 1);
    const unsigned long long low = index & 2 ? words.word[1] : words.word[0];
    const unsigned long long high = index & 2 ? words.word[3] : words.word[2];
    const unsigned long long word = index & 4 ? high : low;  // chosen, not indexed: that would need local memory
    return as_uniform((unsigned int)(index % 2 ? word >> 32 : word));
}
