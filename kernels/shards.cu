// Sums over the shards of a network that is cut, always by one tree: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), of which whoever
// has 2 or 4 neighbouring shards adds a branch. So the bits do not depend on how many GPUs share them. Twin: shards/tree.py.
#include "four.cuh"
#include "tree.cuh"

// Four numbers of each of COUNT parts, all under way together, then the tree.
template <int COUNT>
__device__ __forceinline__ Four sum_of(const float* parts, long long apart, const float* own, int place, int have, bool whole)
{
    Four part[COUNT];
#pragma unroll
    for (int s = 0; s < COUNT; ++s) part[s] = load(own && s == place ? own : parts + s * apart, have, whole);
    add_up(part);
    return part[0];
}

// out[i] = the tree's sum of `count` parts (1, 2, 4 or 8), i < n. Part s begins at parts + s apart; if `own` is not null, part
// `place` is there instead. out may be own. A thread has four numbers next to each other, any grid.
extern "C" __global__ void tree_sum(const float* parts, long long apart, int count, const float* own, int place, float* out,
                                    long long n)
{
    const bool whole = apart % WIDE == 0 && aligned(parts) && aligned(own) && aligned(out);
    const long long threads = (long long)gridDim.x * THREADS;
    for (long long i = ((long long)blockIdx.x * THREADS + threadIdx.x) * WIDE; i < n; i += threads * WIDE) {
        const int have = n - i < WIDE ? (int)(n - i) : WIDE;
        const bool four = whole && have == WIDE;
        const float *first = parts + i, *mine = own ? own + i : 0;
        Four sum;
        if (count == 8) sum = sum_of<8>(first, apart, mine, place, have, four);
        else if (count == 4) sum = sum_of<4>(first, apart, mine, place, have, four);
        else if (count == 2) sum = sum_of<2>(first, apart, mine, place, have, four);
        else sum = sum_of<1>(first, apart, mine, place, have, four);
        store(out + i, sum, have, four);
    }
}
