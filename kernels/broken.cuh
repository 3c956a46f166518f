// Where a number was first not finite.
#pragma once

// mark[0] = step[0], from 1, unless an earlier step stands there. All who write in a launch write the same. null: no mark.
__device__ __forceinline__ void mark_broken(int* mark, const long long* step)
{
    if (mark && mark[0] == 0) mark[0] = (int)step[0];
}

template <int COUNT> __device__ __forceinline__ bool all_finite(const float* x)
{
    bool finite = true;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) finite = finite && isfinite(x[k]);
    return finite;
}
