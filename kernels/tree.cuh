// The tree of shards.cu: of parts that are all there, and of parts that come one after the other. Twin: shards/tree.py.
#pragma once
#include "four.cuh"

constexpr int SHARDS = 8;   // of a layer that is cut
constexpr int HEIGHTS = 3;  // branches of 1, 2 and 4 of them that wait for another one

__device__ __forceinline__ void add(Four& left, const Four& right)
{
    for (int k = 0; k < WIDE; ++k) left.at[k] += right.at[k];
}

// Leaves the sum of all parts in the first one; add(left, right) says how two become one.
template <typename T, int COUNT> __device__ __forceinline__ void add_up(T (&part)[COUNT])
{
#pragma unroll
    for (int step = 1; step < COUNT; step *= 2)
#pragma unroll
        for (int s = 0; s < COUNT; s += 2 * step) add(part[s], part[s + step]);
}

// As soon as two branches of one height are there, they are added, so that a thread keeps one a height.
struct Tree { Four branch[HEIGHTS]; };

// Takes part number s; where it completes the tree of s + 1 parts, it becomes that sum. The heights are constants of the code,
// as an index that is none would need local memory.
__device__ __forceinline__ void take(Tree& tree, int s, Four& part)
{
    bool open = true;
#pragma unroll
    for (int height = 0; height < HEIGHTS; ++height) {
        if (!open) continue;
        if (s >> height & 1) {
            Four left = tree.branch[height];
            add(left, part);
            part = left;
        } else {
            tree.branch[height] = part;
            open = false;
        }
    }
}
