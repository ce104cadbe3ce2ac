// A token of each row of logits, drawn from the most likely ones: w = e^((x - max) / T), kept are the tokens with a logit of
// the top_k largest or more, of these those down to a logit at which the weights reach top_p of what is left, and of these
// y[r] is the first at which the weights sum up to more than u of their total. x [rows, cols], draws [positions, rows] of i32
// with u = draw / 2^31, at [1] the position whose draws are taken, y [rows] of i32. NaN is never drawn, a row of nothing else
// gives 0.
//
// Nothing is sorted: a logit is an unsigned key of the same order, and the smallest key that is kept is found two bits at a
// time, from the top, by the number or the weights of the keys above it. Weights are integers, 2^40 for the largest logit,
// and each step of their exponential is one rounding: sums are exact in any order, and the host (src/ops/sample/host.rs) has
// the same ones bit for bit.
//
//   entry     grid             block   cluster                 dynamic shared memory
//   sample    rows * cluster   512     1, 2, 4 or 8 blocks     4 bytes for each of the `part` logits of a block
//
// The blocks of a cluster share a row; `part` is a multiple of 8, `scale` log2(e) / T. May overlap with the launch ahead.
// Serves up to 2^18 columns. Clusters are of compute capability 9.0: before it there is no entry.
#if __CUDA_ARCH__ >= 900
#include "async.cuh"
#include "cluster.cuh"
#include "common.cuh"
#include "dependent.cuh"
#include "hopper.cuh"

namespace {

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / WARP;
constexpr int MOST_BLOCKS = 8;
constexpr int MICRO = 1000000;

typedef unsigned long long wide_t;

// == Keys =========================================================================================================

#if defined(KERNELGATE_F32)
typedef unsigned key_t;
constexpr unsigned SIGN = 0x80000000u, INFINITE = 0x7f800000u;
__device__ __forceinline__ unsigned bits_of(float x) { return __float_as_uint(x); }
__device__ __forceinline__ float of_bits(unsigned bits) { return __uint_as_float(bits); }
#elif defined(KERNELGATE_F16)
typedef unsigned short key_t;
constexpr unsigned SIGN = 0x8000u, INFINITE = 0x7c00u;
__device__ __forceinline__ unsigned bits_of(__half x) { return __half_as_ushort(x); }
__device__ __forceinline__ float of_bits(unsigned bits) { return to_float(__ushort_as_half((unsigned short)bits)); }
#else
typedef unsigned short key_t;
constexpr unsigned SIGN = 0x8000u, INFINITE = 0x7f80u;
__device__ __forceinline__ unsigned bits_of(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }
__device__ __forceinline__ float of_bits(unsigned bits) { return __uint_as_float(bits << 16); }
#endif
constexpr int KEY_BITS = 8 * sizeof(key_t);

// Unsigned in the order of the logits, both zeros the same; 0 is that of NaN alone.
__device__ __forceinline__ unsigned key_of(scalar_t x) {
    const unsigned bits = bits_of(x), magnitude = bits & (SIGN - 1);
    if (magnitude > INFINITE) return 0;
    if (magnitude == 0) return SIGN;
    return bits & SIGN ? SIGN - 1 - magnitude : bits | SIGN;
}
__device__ __forceinline__ float logit_of(unsigned key) {
    return of_bits(key & SIGN ? key & (SIGN - 1) : SIGN | (SIGN - 1 - key));
}

// == Weights ======================================================================================================

// 2^40 e^((x - max) / T) of a key that is none of NaN.
struct Weight {
    float largest;
    float scale;
    unsigned least;  // the smallest key that has one
    __device__ __forceinline__ wide_t operator()(unsigned key) const {
        if (key < least) return 0;
        const float x = logit_of(key);
        // Infinities have no difference.
        const float log2 = x == largest ? 0.0f : __fmul_rn(x - largest, scale);
        if (!(log2 > -42.0f)) return 0;
        const float whole = rintf(log2);
        const float part = log2 - whole;
        // Not contracted: as on a host without fused operations.
        float power = 0.000015252734f;
        power = __fadd_rn(__fmul_rn(power, part), 0.0001540353f);
        power = __fadd_rn(__fmul_rn(power, part), 0.0013333558f);
        power = __fadd_rn(__fmul_rn(power, part), 0.009618129f);
        power = __fadd_rn(__fmul_rn(power, part), 0.05550411f);
        power = __fadd_rn(__fmul_rn(power, part), 0.2402265f);
        power = __fadd_rn(__fmul_rn(power, part), 0.6931472f);
        power = __fadd_rn(__fmul_rn(power, part), 1.0f);
        const wide_t mantissa = (unsigned)(power * 16777216.0f);  // exact
        const int shift = int(whole) + 16;
        return shift < 0 ? mantissa >> -shift : mantissa << shift;
    }
};

struct One {
    __device__ __forceinline__ wide_t operator()(unsigned) const { return 1; }
};

// == What a cluster knows together ================================================================================

// Of numbers below 2^54: 27 bits of 32 lanes fit a register.
struct Total {
    static __device__ __forceinline__ wide_t of_warp(wide_t x) {
        constexpr int HALF = 27;
        const wide_t low = __reduce_add_sync(ALL_LANES, unsigned(x) & ((1u << HALF) - 1));
        const wide_t high = __reduce_add_sync(ALL_LANES, unsigned(x >> HALF));
        return (high << HALF) + low;
    }
    static __device__ __forceinline__ wide_t of_two(wide_t a, wide_t b) { return a + b; }
};
// Of keys.
struct Largest {
    static __device__ __forceinline__ wide_t of_warp(wide_t x) { return __reduce_max_sync(ALL_LANES, unsigned(x)); }
    static __device__ __forceinline__ wide_t of_two(wide_t a, wide_t b) { return a > b ? a : b; }
};

constexpr int AT_ONCE = 3;

struct Shared {
    wide_t of_warps[WARPS][AT_ONCE];
    // What every block came to, in turns: while one is read, the next may arrive.
    wide_t of_blocks[2][MOST_BLOCKS][AT_ONCE];
};

struct Row {
    Shared& shared;
    const key_t* keys;  // of this block's logits
    int count;
    int rank, blocks;
    int turn;

    // Combines numbers of all threads of the cluster; each gets the same.
    template <typename Operation, int N>
    __device__ __forceinline__ void combine(wide_t (&number)[N]) {
        const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
        turn ^= 1;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            number[i] = Operation::of_warp(number[i]);
            if (lane == 0) shared.of_warps[warp][i] = number[i];
        }
        __syncthreads();
        if (warp == 0) {
#pragma unroll
            for (int i = 0; i < N; ++i) {
                number[i] = Operation::of_warp(lane < WARPS ? shared.of_warps[lane][i] : 0);
                if (lane < blocks) {
                    const unsigned to = mapa_shared(shared_address(&shared.of_blocks[turn][rank][i]), lane);
                    asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(to), "l"(number[i]) : "memory");
                }
            }
        }
        hopper::cluster_sync();
#pragma unroll
        for (int i = 0; i < N; ++i) {
            number[i] = 0;
            for (int b = 0; b < blocks; ++b) number[i] = Operation::of_two(number[i], shared.of_blocks[turn][b][i]);
        }
    }

    // The largest key such that the values of all keys from it on sum up to the target; 0 if there is none.
    template <typename Value>
    __device__ __forceinline__ unsigned last_of(wide_t target, Value value) {
        unsigned found = 0;
        wide_t above = 0;  // the values of keys with larger upper bits
#pragma unroll 1
        for (int shift = KEY_BITS - 2; shift >= 0; shift -= 2) {
            wide_t of_digit[AT_ONCE] = {0, 0, 0};  // 1, 2 and 3
            for (int i = threadIdx.x; i < count; i += THREADS) {
                const unsigned key = keys[i];
                // Those with the upper bits that were found, and not 0 behind them.
                const unsigned digit = (key ^ found) >> shift;
                if (digit - 1 < AT_ONCE) {
                    const wide_t of_key = value(key);
#pragma unroll
                    for (int d = 0; d < AT_ONCE; ++d) of_digit[d] += digit == d + 1 ? of_key : 0;
                }
            }
            combine<Total>(of_digit);
#pragma unroll
            for (int d = AT_ONCE; d > 0; --d) {
                if (above + of_digit[d - 1] >= target) {
                    found |= unsigned(d) << shift;
                    break;
                }
                above += of_digit[d - 1];
            }
        }
        return found;
    }
};

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
    sample(const scalar_t* __restrict__ x, const int* __restrict__ draws, const int* __restrict__ at, int* __restrict__ y,
           int rows, int cols, int part, int top_k, int top_p_micro, float scale) {
    extern __shared__ key_t keys[];
    __shared__ Shared shared;
    const int rank = int(hopper::cluster_rank()), blocks = int(cluster_size());
    cluster_arrive_relaxed();
    begin_dependent_launch();
    const int number = blockIdx.x / blocks;
    const int first = rank * part;
    const int count = max(0, min(part, cols - first));
    const scalar_t* const from = behind_wait(x) + (long long)number * cols + first;
    const wide_t draw = unsigned(behind_wait(draws)[(long long)*behind_wait(at) * rows + number]);

    unsigned largest = 0;
    const int packs = cols % PACK_LEN == 0 ? count / PACK_LEN : 0;
    for (int i = threadIdx.x; i < packs; i += THREADS) {
        const Pack pack = load_pack(from + i * PACK_LEN);
        const scalar_t* const element = reinterpret_cast<const scalar_t*>(&pack);
#pragma unroll
        for (int e = 0; e < PACK_LEN; ++e) {
            const unsigned key = key_of(element[e]);
            keys[i * PACK_LEN + e] = key_t(key);
            largest = max(largest, key);
        }
    }
    for (int i = packs * PACK_LEN + threadIdx.x; i < count; i += THREADS) {
        const unsigned key = key_of(from[i]);
        keys[i] = key_t(key);
        largest = max(largest, key);
    }
    cluster_wait();  // the others are there to be written to
    Row row{shared, keys, count, rank, blocks, 0};
    wide_t most[1] = {largest};
    row.combine<Largest>(most);
    if (most[0] == 0) {
        if (rank == 0 && threadIdx.x == 0) y[number] = 0;
        return;
    }
    Weight weight{logit_of(unsigned(most[0])), scale, 1};
    if (top_k > 0 && top_k < cols) weight.least = max(1u, row.last_of(top_k, One{}));
    if (top_p_micro < MICRO) {
        wide_t kept[1] = {0};
        for (int i = threadIdx.x; i < count; i += THREADS) kept[0] += weight(keys[i]);
        row.combine<Total>(kept);
        const wide_t whole = kept[0] / MICRO, rest = kept[0] % MICRO;
        const wide_t share = whole * top_p_micro + (rest * top_p_micro + (MICRO - 1)) / MICRO;
        weight.least = row.last_of(max(share, wide_t(1)), weight);
    }

    // Each warp has a stretch of the tokens: one of them finds the token in its own.
    const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
    const int stretch = (count + THREADS - 1) / THREADS * WARP;
    const int begin = warp * stretch, end = min(begin + stretch, count);
    wide_t own[1] = {0};
    for (int i = begin + lane; i < end; i += WARP) own[0] += weight(keys[i]);
    row.combine<Total>(own);
    const wide_t wanted = __umul64hi(own[0], draw << 33);  // of the total, rounded down
    wide_t before = 0;
    for (int b = 0; b < rank; ++b) before += shared.of_blocks[row.turn][b][0];
    for (int w = 0; w < warp; ++w) before += shared.of_warps[w][0];
    if (wanted < before || wanted >= before + shared.of_warps[warp][0]) return;
    for (int i = begin; i < end; i += WARP) {
        wide_t sum = i + lane < end ? weight(keys[i + lane]) : 0;
#pragma unroll
        for (int offset = 1; offset < WARP; offset *= 2) {
            const wide_t left = __shfl_up_sync(ALL_LANES, sum, offset);
            sum += lane >= offset ? left : 0;
        }
        const unsigned passing = __ballot_sync(ALL_LANES, before + sum > wanted);
        if (passing != 0) {
            if (lane == 0) y[number] = first + i + __ffs(passing) - 1;
            return;
        }
        before += __shfl_sync(ALL_LANES, sum, WARP - 1);
    }
}
#endif
