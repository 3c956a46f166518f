// CUDA C on the CPU, for tests. One fiber a thread: blocks run one after another, and a thread runs until it ends or waits
// at a barrier or in a warp's exchange. The order is fixed, so that a race gives the same wrong answer every time; another
// launch takes blocks, warps and lanes in another order, and the two answers differ.
// Shared memory is poisoned before every block, so that what is read before it is written shows as a NaN.
// What CUDA forbids ends the launch with a message: see `fail`. tests/kernels/host.py puts the kernels' text behind this.
#pragma once

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>

#if !defined(__x86_64__) || defined(CUDA_HOST_UCONTEXT)
#define CUDA_HOST_PORTABLE
#include <ucontext.h>
#endif

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __restrict__ __restrict
#define __shared__ static __attribute__((section("cuda_shared"), used))  // one copy, as one block runs at a time

struct dim3 { unsigned int x = 1, y = 1, z = 1; };
struct float2 { float x, y; };
struct int2 { int x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) double2 { double x, y; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline double2 make_double2(double x, double y) { return {x, y}; }

static dim3 blockIdx, threadIdx, blockDim, gridDim;
static const int warpSize = 32;
extern "C" char __start_cuda_shared[] __attribute__((visibility("hidden")));  // the linker sets these two
extern "C" char __stop_cuda_shared[] __attribute__((visibility("hidden")));

namespace cuda_host {

constexpr unsigned int MOST_THREADS = 1024, LANES = 32;
constexpr size_t STACK = 64 << 10, MOST_DYNAMIC = 48 << 10, GUARD = 1 << 10;
constexpr uint32_t POISON = 0x7FFCDEAD;  // a NaN as a float, two of them a NaN as a double, a huge number as an int

__shared__ __align__(16) uint32_t shared_begins[4] = {POISON, POISON, POISON, POISON};  // the section is never empty
alignas(64) static char dynamic[MOST_DYNAMIC + GUARD];

enum Wait { NOTHING, BARRIER, WARP, END };
enum Exchange { SYNC, SHUFFLE, BALLOT };
enum Order { FORWARDS, BACKWARDS, MIXED };  // sums by halves are the same backwards, but not mixed

#ifdef CUDA_HOST_PORTABLE
typedef ucontext_t Context;
static void change(Context* save, Context* load) { swapcontext(save, load); }
#else
typedef void* Context;  // the stack pointer; the registers that a function must keep lie on the stack
extern "C" void cuda_host_switch(void** save, void* load) __attribute__((visibility("hidden")));
asm(R"(
.text
.globl cuda_host_switch
.hidden cuda_host_switch
.type cuda_host_switch,@function
cuda_host_switch:
    pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movq %rsp,(%rdi)
    movq %rsi,%rsp
    popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
    ret
.size cuda_host_switch,.-cuda_host_switch
)");
static void change(Context* save, Context* load) { cuda_host_switch(save, *load); }
#endif

struct Fiber {
    Context context;
    char* stack;
    unsigned int thread;
    Wait wait;
    int line;              // where it waits, in the text of the kernels
    Exchange exchange;     // the rest: what it gives to its warp and gets from it
    unsigned int mask, source;
    uint64_t given, received;
};

static Fiber fibers[MOST_THREADS];
static Fiber* now;
static Context home;
static unsigned int threads;
static unsigned char places[LANES + 1][LANES];  // the order of so many lanes or warps
static void (*body)(void**);
static void** arguments;
static char failure[300];

static void yield(Wait wait, int line)
{
    now->wait = wait;
    now->line = line;
    change(&now->context, &home);
}

static void say(const char* format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char* format, ...)  // the first message is kept
{
    if (failure[0]) return;
    int length = snprintf(failure, sizeof failure, "block (%u, %u, %u): ", blockIdx.x, blockIdx.y, blockIdx.z);
    va_list values;
    va_start(values, format);
    vsnprintf(failure + length, sizeof failure - length, format, values);
    va_end(values);
}

// Ends the launch from within a thread.
[[noreturn]] static void fail(int line, const char* what)
{
    say("thread %u, line %d: %s", now->thread, line, what);
    for (;;) yield(END, line);
}

static void entry()
{
    body(arguments);
    for (;;) yield(END, 0);
}

static void prepare(unsigned int thread)
{
    Fiber& fiber = fibers[thread];
    if (!fiber.stack) fiber.stack = (char*)aligned_alloc(64, STACK);
    fiber.thread = thread;
    fiber.wait = NOTHING;
#ifdef CUDA_HOST_PORTABLE
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, entry, 0);
#else
    void** top = (void**)(fiber.stack + STACK);
    *--top = nullptr;  // so that entry sees the stack as a call leaves it
    *--top = (void*)entry;
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    fiber.context = top;
#endif
}

static void resume(Fiber& fiber)
{
    const unsigned int t = fiber.thread, plane = blockDim.x * blockDim.y;
    threadIdx = {t % blockDim.x, t % plane / blockDim.x, t / plane};
    now = &fiber;
    change(&home, &fiber.context);
}

static uint64_t exchanged(const Fiber* warp, const Fiber& lane, unsigned int lanes)
{
    if (lane.exchange == SHUFFLE) return warp[lane.source].given;
    uint64_t bits = 0;
    for (unsigned int other = 0; other < lanes; ++other)
        if (lane.mask >> other & 1 && warp[other].wait == WARP && warp[other].given) bits |= 1ull << other;
    return bits;
}

// Whether all lanes that one lane waits for have come to the same place. A lane that has ended is not waited for, but
// nothing can be got from it.
static bool complete(const Fiber* warp, const Fiber& lane, unsigned int lanes)
{
    for (unsigned int other = 0; other < lanes; ++other) {
        if (!(lane.mask >> other & 1) || warp[other].wait == END) continue;
        if (warp[other].wait != WARP || warp[other].line != lane.line || warp[other].mask != lane.mask) return false;
    }
    if (lane.exchange == SHUFFLE && (lane.source >= lanes || !(lane.mask >> lane.source & 1)
                                     || warp[lane.source].wait == END))
        say("thread %u, line %d: a shuffle from lane %u, which is not there", lane.thread, lane.line, lane.source);
    return !failure[0];
}

static bool release_warp(Fiber* warp, unsigned int lanes)
{
    bool released[LANES] = {}, any = false;
    for (unsigned int lane = 0; lane < lanes; ++lane)
        if (warp[lane].wait == WARP && complete(warp, warp[lane], lanes)) {
            warp[lane].received = exchanged(warp, warp[lane], lanes);
            released[lane] = any = true;
        }
    for (unsigned int lane = 0; lane < lanes; ++lane)
        if (released[lane]) warp[lane].wait = NOTHING;
    return any;
}

static void set_order(Order order)
{
    for (unsigned int count = 1; count <= LANES; ++count)
        for (unsigned int i = 0, place = 0; i < LANES; ++i) {
            const unsigned int turned = (i << 2 | i >> 3) % LANES ^ 9;  // the five bits change places
            const unsigned int next = order == MIXED ? turned : order == BACKWARDS ? LANES - 1 - i : i;
            if (next < count) places[count][place++] = (unsigned char)next;
        }
}

// Runs a warp until each of its lanes has ended or stands at a barrier.
static void run_warp(Fiber* warp, unsigned int lanes)
{
    do {
        for (unsigned int i = 0; i < lanes && !failure[0]; ++i) {
            Fiber& fiber = warp[places[lanes][i]];
            if (fiber.wait == NOTHING) resume(fiber);
        }
    } while (!failure[0] && release_warp(warp, lanes));
}

// Ends the barrier at which all threads stand that have not ended; false when there is none such.
static bool release_block()
{
    int line = 0;
    for (unsigned int t = 0; t < threads; ++t) {
        const Fiber& fiber = fibers[t];
        if (fiber.wait == WARP)
            say("thread %u, line %d: deadlock, its warp's other lanes do not come", t, fiber.line);
        if (fiber.wait != BARRIER) continue;
        if (line && line != fiber.line)
            say("deadlock, some threads stand at the barrier in line %d, others in line %d", line, fiber.line);
        line = fiber.line;
    }
    for (unsigned int t = 0; t < threads; ++t)
        if (fibers[t].wait == BARRIER) fibers[t].wait = NOTHING;
    return line && !failure[0];
}

static void poison(char* begin, char* end)
{
    for (; begin < end; begin += sizeof POISON) memcpy(begin, &POISON, sizeof POISON);
}

static void run_block(size_t shared)
{
    poison(__start_cuda_shared, __stop_cuda_shared);
    poison(dynamic, dynamic + (shared + 3) / 4 * 4 + GUARD);
    for (unsigned int t = 0; t < threads; ++t) prepare(t);
    const unsigned int warps = (threads + LANES - 1) / LANES;
    do {
        for (unsigned int i = 0; i < warps && !failure[0]; ++i) {
            const unsigned int first = places[warps][i] * LANES;
            run_warp(fibers + first, threads - first < LANES ? threads - first : LANES);
        }
    } while (!failure[0] && release_block());
    for (size_t at = (shared + 3) / 4 * 4; at < shared + GUARD / 2; at += sizeof POISON)
        if (memcmp(dynamic + at, &POISON, sizeof POISON))
            return say("written past the %zu bytes of dynamic shared memory", shared);
}

// Runs a grid; returns a message when something was wrong, else null.
static const char* launch(void (*kernel)(void**), void** args, const unsigned int* grid, const unsigned int* block,
                          size_t shared, Order order)
{
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    threads = block[0] * block[1] * block[2];
    body = kernel;
    arguments = args;
    failure[0] = 0;
    set_order(order);
    const uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    for (uint64_t i = 0; i < blocks && !failure[0]; ++i) {
        const uint64_t at = order == FORWARDS ? i : blocks - 1 - i;
        blockIdx = {(unsigned int)(at % grid[0]), (unsigned int)(at / grid[0] % grid[1]),
                    (unsigned int)(at / grid[0] / grid[1])};
        run_block(shared);
    }
    return failure[0] ? failure : nullptr;
}

static uint64_t exchange(int line, Exchange kind, unsigned int mask, uint64_t given, unsigned int source)
{
    if (!(mask >> now->thread % LANES & 1)) fail(line, "the mask is without the lane itself");
    now->exchange = kind;
    now->mask = mask;
    now->given = given;
    now->source = source;
    yield(WARP, line);
    return now->received;
}

template <class T> T shuffle(int line, unsigned int mask, T value, unsigned int source)
{
    static_assert(std::is_arithmetic<T>::value, "a number");
    uint64_t given = 0;
    memcpy(&given, &value, sizeof value);
    given = exchange(line, SHUFFLE, mask, given, source);
    memcpy(&value, &given, sizeof value);
    return value;
}

static unsigned int lane() { return now->thread % LANES; }
static unsigned int segment(int width) { return lane() / width * width; }

template <class T> T shuffle_from(int line, unsigned int mask, T value, int source, int width = 32)
{
    if (source < 0 || source >= width) fail(line, "a shuffle from a lane outside the width");
    return shuffle(line, mask, value, segment(width) + source);
}

template <class T> T shuffle_xor(int line, unsigned int mask, T value, int bits, int width = 32)
{
    if (bits < 0 || bits >= width) fail(line, "a shuffle from a lane outside the width");
    return shuffle(line, mask, value, lane() ^ bits);
}

template <class T> T shuffle_down(int line, unsigned int mask, T value, unsigned int by, int width = 32)
{
    if (by >= (unsigned int)width) fail(line, "a shuffle from a lane outside the width");
    return shuffle(line, mask, value, lane() % width + by < (unsigned int)width ? lane() + by : lane());
}

template <class T> T shuffle_up(int line, unsigned int mask, T value, unsigned int by, int width = 32)
{
    if (by >= (unsigned int)width) fail(line, "a shuffle from a lane outside the width");
    return shuffle(line, mask, value, lane() % width >= by ? lane() - by : lane());
}

static void sync_warp(int line, unsigned int mask = ~0u) { exchange(line, SYNC, mask, 0, 0); }

static unsigned int ballot(int line, unsigned int mask, int predicate)
{
    return (unsigned int)exchange(line, BALLOT, mask, predicate != 0, 0);
}

}  // namespace cuda_host

#define __syncthreads() cuda_host::yield(cuda_host::BARRIER, __LINE__)
#define __syncwarp(...) cuda_host::sync_warp(__LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_sync(...) cuda_host::shuffle_from(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) cuda_host::shuffle_xor(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) cuda_host::shuffle_down(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) cuda_host::shuffle_up(__LINE__, __VA_ARGS__)
#define __ballot_sync(...) cuda_host::ballot(__LINE__, __VA_ARGS__)
#define __any_sync(...) (cuda_host::ballot(__LINE__, __VA_ARGS__) != 0)
#define __dynamic_shared__(type) reinterpret_cast<type*>(cuda_host::dynamic)  // host.py writes it for extern __shared__

// Atomics of integers only: those of floats would make a sum depend on the order of the threads.
#define CUDA_HOST_ATOMIC(name, result)                                          \
    template <class T> T name(T* at, typename std::common_type<T>::type value) \
    {                                                                           \
        static_assert(std::is_integral<T>::value, "an integer");                \
        const T old = *at;                                                      \
        *at = result;                                                           \
        return old;                                                             \
    }
CUDA_HOST_ATOMIC(atomicAdd, old + value)
CUDA_HOST_ATOMIC(atomicSub, old - value)
CUDA_HOST_ATOMIC(atomicMin, value < old ? value : old)
CUDA_HOST_ATOMIC(atomicMax, value > old ? value : old)
CUDA_HOST_ATOMIC(atomicOr, old | value)
CUDA_HOST_ATOMIC(atomicAnd, old & value)
CUDA_HOST_ATOMIC(atomicXor, old ^ value)
CUDA_HOST_ATOMIC(atomicExch, value)

template <class To, class From> static To cuda_host_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline int __float_as_int(float x) { return cuda_host_bits<int>(x); }
static inline unsigned int __float_as_uint(float x) { return cuda_host_bits<unsigned int>(x); }
static inline float __int_as_float(int x) { return cuda_host_bits<float>(x); }
static inline float __uint_as_float(unsigned int x) { return cuda_host_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return cuda_host_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return cuda_host_bits<double>(x); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline unsigned int __umulhi(unsigned int a, unsigned int b) { return (unsigned int)((uint64_t)a * b >> 32); }
static inline int __popc(unsigned int x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
template <class T> static T __ldg(const T* at) { return *at; }

template <class A, class B> static typename std::common_type<A, B>::type min(A a, B b)
{
    if constexpr (std::is_floating_point<typename std::common_type<A, B>::type>::value) return fmin(a, b);
    typedef typename std::common_type<A, B>::type C;
    return (C)b < (C)a ? (C)b : (C)a;
}
template <class A, class B> static typename std::common_type<A, B>::type max(A a, B b)
{
    if constexpr (std::is_floating_point<typename std::common_type<A, B>::type>::value) return fmax(a, b);
    typedef typename std::common_type<A, B>::type C;
    return (C)a < (C)b ? (C)b : (C)a;
}

// What -fsanitize=undefined finds ends the launch with a message, like everything else; so no runtime library is needed.
// Each report starts with the place, in the layout that the compiler writes.
namespace cuda_host {
struct Place { const char* file; uint32_t line, column; };
#define CUDA_HOST_FINDING(name, what)                                                                       \
    [[noreturn]] __attribute__((visibility("hidden"), used)) void name(const Place* place) asm("__ubsan_handle_" #name); \
    void name(const Place* place) { fail((int)place->line, what); }
CUDA_HOST_FINDING(type_mismatch_v1_abort, "a pointer that is null, misaligned or to something too small")
CUDA_HOST_FINDING(pointer_overflow_abort, "a pointer out of its range")
CUDA_HOST_FINDING(out_of_bounds_abort, "an index outside the array")
CUDA_HOST_FINDING(add_overflow_abort, "a sum too large for its type")
CUDA_HOST_FINDING(sub_overflow_abort, "a difference too large for its type")
CUDA_HOST_FINDING(mul_overflow_abort, "a product too large for its type")
CUDA_HOST_FINDING(negate_overflow_abort, "a negation too large for its type")
CUDA_HOST_FINDING(divrem_overflow_abort, "a division by zero, or too large for its type")
CUDA_HOST_FINDING(shift_out_of_bounds_abort, "a shift by too many bits")
CUDA_HOST_FINDING(float_cast_overflow_abort, "a number too large for the integer")
CUDA_HOST_FINDING(load_invalid_value_abort, "a value that its type does not have")
CUDA_HOST_FINDING(nonnull_arg_abort, "a null pointer")
CUDA_HOST_FINDING(vla_bound_not_positive_abort, "an array without elements")
CUDA_HOST_FINDING(builtin_unreachable, "a place that is said to be unreachable")
CUDA_HOST_FINDING(missing_return, "a function without a result")
}  // namespace cuda_host
