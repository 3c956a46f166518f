// The k best items of every row of scores. Twin: ranking.top.
//
// A score and its item are one number, higher for what ranks first, and no two are the same: the bits of the score,
// turned so that they are in its order, then those of n - 1 - item, as of equal scores the first item is the better
// one. The k-th highest of these numbers is found from its top bits downwards by counting (radix select, as in Alabi
// et al. 2012, "Fast k-selection algorithms for graphics processing units"): of the items whose number begins like
// that of the k-th, how many there are with each value of the next bits. As soon as those that may be among the best
// fit into shared memory they are sorted there, which mostly is after one look at the scores.
#include "batch.cuh"
#include "names.cuh"

constexpr int DIGIT = 11;             // bits that are looked at together
constexpr int BINS = 1 << DIGIT;
constexpr int OWN = BINS / THREADS;   // bins of a thread
constexpr int CAPACITY = 2048;        // items that are sorted, twice the most that can be asked for
constexpr int BATCH = 4;              // loads of a thread that are under way together
constexpr unsigned int MINUS_INFINITY = 0xff800000u;

using Rank = unsigned long long;

// The number of an item, 0 for a score that does not count: -inf or NaN. Both zeros are one score.
__device__ __forceinline__ Rank rank_of(float score, int item, int n, int item_bits)
{
    const unsigned int bits = __float_as_uint(score + 0.0f);
    const unsigned int key = bits >> 31 ? ~bits : bits | 0x80000000u;
    return score > __uint_as_float(MINUS_INFINITY) ? (Rank)key << item_bits | (unsigned int)(n - 1 - item) : 0;
}

// Reads BATCH scores of a row; what is beyond its end does not count.
__device__ __forceinline__ void load(float* scores, const float* line, int low, int n)
{
    for (int j = 0; j < BATCH; ++j) {
        const int item = low + j * THREADS;
        scores[j] = item < n ? line[item] : __uint_as_float(MINUS_INFINITY);
    }
}

// Where the k-th item from above is: its digit, how many are above it, how many have this digit. The bins hold how
// many items have each digit; `above` have a higher number anyway. Where fewer than k items count, the digit is 0.
struct Place { int digit, above, inside; };

__device__ __forceinline__ Place place_of(const int* bins, int above, int k)
{
    __shared__ int reach[THREADS];
    __shared__ Place place;
    const int t = threadIdx.x, high = BINS - 1 - t * OWN;  // the first thread has the highest digits
    int own = 0;
    for (int j = 0; j < OWN; ++j) own += bins[high - j];
    reach[t] = own;
    __syncthreads();
    for (int step = 1; step < THREADS; step *= 2) {
        const int more = t >= step ? reach[t - step] : 0;
        __syncthreads();
        reach[t] += more;
        __syncthreads();
    }
    int before = above + reach[t] - own;
    if (before < k && before + own >= k) {
        int digit = high;
        for (; before + bins[digit] < k; --digit) before += bins[digit];
        place = {digit, before, bins[digit]};
    }
    if (t == 0 && above + reach[THREADS - 1] < k) place = {0, 0, above + reach[THREADS - 1]};
    __syncthreads();
    return place;
}

// Sorts `size` numbers, a power of two, the highest first (Batcher 1968, bitonic sorting).
__device__ __forceinline__ void sort(Rank* ranks, int size)
{
    for (int run = 2; run <= size; run *= 2)
        for (int reach = run / 2; reach > 0; reach /= 2) {
            for (int pair = threadIdx.x; pair < size / 2; pair += THREADS) {
                const int first = 2 * pair - pair % reach, second = first + reach;
                const Rank one = ranks[first], other = ranks[second];
                if ((one < other) == ((first & run) == 0)) ranks[first] = other, ranks[second] = one;
            }
            __syncthreads();
        }
}

// scores (b, n), `ld` floats from row to row; the items of row i in the batch's section, if there is one, have no
// rank and get the score -inf. ranked and values (b, k): the best items, best first, equal scores by item, and their
// scores; where fewer than k have a score above -inf, item -1 and score -inf follow. k <= 1024, k <= n. One block a
// row, grid b.
extern "C" __global__ void top(float* scores, int b, int n, int ld, const int* __restrict__ batch, int starts_at,
                               int items_at, int k, int* ranked, float* values)
{
    __shared__ Rank best[CAPACITY];
    __shared__ int found;
    int* const bins = reinterpret_cast<int*>(best);  // counting is over when the best are collected
    const int row = blockIdx.x, t = threadIdx.x;
    if (row >= b || n <= 0 || k <= 0) return;
    float* const line = scores + (long long)row * ld;
    if (starts_at >= 0) {
        const int *starts = section(batch, starts_at), *items = section(batch, items_at);
        for (int i = starts[row] + t; i < starts[row + 1]; i += THREADS)
            line[items[i]] = __uint_as_float(MINUS_INFINITY);
        __syncthreads();
    }

    int item_bits = 0;
    while ((n - 1) >> item_bits) ++item_bits;
    int shift = 32 + item_bits;  // the bits from here upwards are known
    Rank known = 0;
    Place place = {0, 0, n};
    float part[BATCH];
    while (shift > 0 && place.above + place.inside > CAPACITY) {
        const int next = max(shift - DIGIT, 0);
        for (int bin = t; bin < BINS; bin += THREADS) bins[bin] = 0;
        __syncthreads();
        for (int low = t; low < n; low += BATCH * THREADS) {
            load(part, line, low, n);
            for (int j = 0; j < BATCH; ++j) {
                const Rank rank = rank_of(part[j], low + j * THREADS, n, item_bits);
                if (rank != 0 && rank >> shift == known)
                    atomicAdd(bins + (int)((rank >> next) & ((1 << (shift - next)) - 1)), 1);
            }
        }
        __syncthreads();
        place = place_of(bins, place.above, k);
        known = known << (shift - next) | (Rank)place.digit;
        shift = next;
    }

    for (int i = t; i < CAPACITY; i += THREADS) best[i] = 0;
    if (t == 0) found = 0;
    __syncthreads();
    for (int low = t; low < n; low += BATCH * THREADS) {
        load(part, line, low, n);
        for (int j = 0; j < BATCH; ++j) {  // in any order: sorting gives every item its place
            const Rank rank = rank_of(part[j], low + j * THREADS, n, item_bits);
            if (rank != 0 && rank >> shift >= known) best[atomicAdd(&found, 1)] = rank;
        }
    }
    __syncthreads();
    int size = 2;
    while (size < found) size *= 2;
    sort(best, size);
    for (int i = t; i < k; i += THREADS) {
        const int item = i < found ? n - 1 - (int)(best[i] & (((Rank)1 << item_bits) - 1)) : -1;
        ranked[(long long)row * k + i] = item;
        values[(long long)row * k + i] = item < 0 ? __uint_as_float(MINUS_INFINITY) : line[item];
    }
}
