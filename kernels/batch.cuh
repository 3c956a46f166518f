// A batch on the device: one array of ints that starts with a header, see README.md.
#pragma once

__device__ __forceinline__ const int* section(const int* batch, int at) { return at < 0 ? 0 : batch + batch[at]; }

__device__ __forceinline__ const float* floats(const int* batch, int at)
{
    return at < 0 ? 0 : reinterpret_cast<const float*>(batch + batch[at]);
}
