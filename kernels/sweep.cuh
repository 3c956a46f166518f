// A kernel that is moved over maps, as nnlib/spec/geometry.py has it, in ints: three axes, the slowest first, those that are not
// there of size 1, and what is counted of all of them. nnlib/gpu/maps/sweeps.py fills it.
#pragma once
#include "names.cuh"

enum Axis { SIZE, OUT, KERNEL, STRIDE, LOW, DILATION, AXIS_SIZE };
enum SweepCount { BELOW = 3 * AXIS_SIZE, ABOVE, GROUPS, VOLUME, SOURCE, TARGET, SWEEP_SIZE };  // channels of one group; places

// A place on the three axes, and beside it what it belongs to: an example or a channel; -1: there is none.
struct Spot { int at, z, y, x; };

__device__ __forceinline__ Spot nowhere()
{
    const Spot spot = {-1, 0, 0, 0};
    return spot;
}

// Place number i of maps of the sizes that an axis has as `which`: SIZE, OUT or KERNEL.
__device__ __forceinline__ Spot spot_of(const int* sweep, int which, int i)
{
    const int height = sweep[AXIS_SIZE + which], width = sweep[2 * AXIS_SIZE + which];
    const int row = i / width;
    const Spot spot = {0, row / height, row % height, i % width};
    return spot;
}

// Where the first place of a kernel lies whose result has this place: outside of the map, if that begins with padding.
__device__ __forceinline__ Spot first_of(const int* sweep, Spot spot)
{
    spot.z = spot.z * sweep[STRIDE] - sweep[LOW];
    spot.y = spot.y * sweep[AXIS_SIZE + STRIDE] - sweep[AXIS_SIZE + LOW];
    spot.x = spot.x * sweep[2 * AXIS_SIZE + STRIDE] - sweep[2 * AXIS_SIZE + LOW];
    return spot;
}

// How far a place of the kernel is from its first one.
__device__ __forceinline__ Spot distance_of(const int* sweep, Spot spot)
{
    spot.z *= sweep[DILATION];
    spot.y *= sweep[AXIS_SIZE + DILATION];
    spot.x *= sweep[2 * AXIS_SIZE + DILATION];
    return spot;
}

// The place in a map of the source, -1 in the padding.
__device__ __forceinline__ int place_in(const int* sweep, int z, int y, int x)
{
    const int height = sweep[AXIS_SIZE + SIZE], width = sweep[2 * AXIS_SIZE + SIZE];
    const bool inside = z >= 0 && z < sweep[SIZE] && y >= 0 && y < height && x >= 0 && x < width;
    return inside ? (z * height + y) * width + x : -1;
}

// Which place of an axis of the result has its kernel's first place `from` before the map's first, -1: none.
__device__ __forceinline__ int result_on(const int* axis, int from)
{
    const int stride = axis[STRIDE], place = stride == 1 ? from : from / stride;
    return from >= 0 && place * stride == from && place < axis[OUT] ? place : -1;
}

// The place of the result that a place of the source, counted from where padding begins, gives to by a place of the kernel
// this far from its first one; -1: none.
__device__ __forceinline__ int result_of(const int* sweep, const Spot& seen, const Spot& distance)
{
    const int z = result_on(sweep, seen.z - distance.z), y = result_on(sweep + AXIS_SIZE, seen.y - distance.y);
    const int x = result_on(sweep + 2 * AXIS_SIZE, seen.x - distance.x);
    return z < 0 || y < 0 || x < 0 ? -1 : (z * sweep[AXIS_SIZE + OUT] + y) * sweep[2 * AXIS_SIZE + OUT] + x;
}

// A place of the source, counted from where padding begins.
__device__ __forceinline__ Spot from_padding(const int* sweep, Spot spot)
{
    spot.z += sweep[LOW];
    spot.y += sweep[AXIS_SIZE + LOW];
    spot.x += sweep[2 * AXIS_SIZE + LOW];
    return spot;
}
