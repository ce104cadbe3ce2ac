// PTX wrappers for compute capability 9.0a: mbarriers, TMA, wgmma, clusters, named barriers, setmaxnreg.
//
// Addresses in shared memory are 32-bit numbers (`shared_address`). A tile has rows of 128 bytes, 64 elements at half width, in the
// 128-byte swizzle: tensor maps write it, descriptors read it, and it starts at a multiple of 1024 bytes.
#pragma once
#include "async.cuh"

namespace hopper {

constexpr int ROW_BYTES = 128;                  // a row of a swizzled tile
constexpr int PATTERN_BYTES = 8 * ROW_BYTES;    // the swizzle repeats every eight rows
constexpr int WARPGROUP_WARPS = 4;                  // a warpgroup: what issues a wgmma
constexpr int WARPGROUP_THREADS = 32 * WARPGROUP_WARPS;

// A CUtensorMap: 128 opaque bytes, passed by value as a __grid_constant__ parameter.
struct alignas(64) TensorMap {
    unsigned long long words[16];
};

// --- mbarriers ---

__device__ __forceinline__ void mbarrier_init(unsigned barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes fresh mbarriers visible to the other blocks of the cluster and to asynchronous copies.
__device__ __forceinline__ void mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives, and announces the bytes that copies will bring.
__device__ __forceinline__ void mbarrier_expect_tx(unsigned barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Arrives at the same mbarrier of block `rank` of the cluster.
__device__ __forceinline__ void mbarrier_arrive_remote(unsigned barrier, unsigned rank) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
        "r"(rank)
        : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Waits until the phase of this parity is over.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
    asm volatile(
        "{\n.reg .pred over;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
        "@over bra DONE;\nbra WAIT;\nDONE:\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// Whether that phase is over.
__device__ __forceinline__ bool mbarrier_test_wait(unsigned barrier, unsigned parity) {
    unsigned over;
    asm volatile(
        "{\n.reg .pred over;\nmbarrier.test_wait.parity.shared::cta.b64 over, [%1], %2;\nselp.u32 %0, 1, 0, over;\n}"
        : "=r"(over)
        : "r"(barrier), "r"(parity)
        : "memory");
    return over;
}

// Where a role stands in a pipeline of STAGES stages: the stage, and the parity of its phase.
template <int STAGES>
struct PipelineState {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// --- clusters ---

__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Four words from the shared memory of block `rank`.
__device__ __forceinline__ float4 load_remote(unsigned address, unsigned rank) {
    float4 value;
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
        "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
        : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
        : "r"(address), "r"(rank)
        : "memory");
    return value;
}

// --- TMA ---

__device__ __forceinline__ void prefetch_tensormap(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Starts a copy of neighbouring bytes, a multiple of 16 from a multiple of 16; they are counted at `barrier`.
__device__ __forceinline__ void bulk_load(unsigned to, const void* from, int bytes, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
        : "memory");
}

// Starts the copy of the box at column `x` and row `y`; its bytes are counted at `barrier`.
__device__ __forceinline__ void tma_load(unsigned to, const TensorMap& map, int x, int y, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// The same into all blocks of `mask`, at the same address in each, counted at the same mbarrier of each.
__device__ __forceinline__ void tma_load_multicast(unsigned to, const TensorMap& map, int x, int y, unsigned barrier,
                                              unsigned short mask) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(mask)
        : "memory");
}

// The same of a tensor of matrices, from matrix `z`: what lies past the edges of the matrix is not copied.
__device__ __forceinline__ void tma_load(unsigned to, const TensorMap& map, int x, int y, int z, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier)
        : "memory");
}

// The policy of what nobody reads again: L2 gives it up before all else, and keeps code and maps.
constexpr unsigned long long EVICT_FIRST = 0x12f0000000000000ull;  // what createpolicy gives for all of the accesses

// As `tma_load`, of such.
__device__ __forceinline__ void tma_load_evict_first(unsigned to, const TensorMap& map, int x, int y, int z,
                                              unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier), "l"(EVICT_FIRST)
        : "memory");
}

__device__ __forceinline__ void tma_load_multicast(unsigned to, const TensorMap& map, int x, int y, int z, unsigned barrier,
                                              unsigned short mask) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(mask)
        : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap& map, int x, int y, int z, unsigned from) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
                 "r"(x), "r"(y), "r"(z), "r"(from)
                 : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap& map, int x, int y, unsigned from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
                 "r"(x), "r"(y), "r"(from)
                 : "memory");
}

__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's stores still read shared memory.
template <int PENDING>
__device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// Shows this thread's stores to shared memory to TMA and wgmma that come after the next barrier.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- warps and warpgroups ---

// One lane of a warp that has not diverged; the compiler knows then that addresses are the same in all.
__device__ __forceinline__ bool elect_one() {
    unsigned is;
    asm volatile("{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\nselp.u32 %0, 1, 0, one;\n}" : "=r"(is));
    return is != 0;
}

// A barrier among `threads` threads that name the same id (0 is __syncthreads).
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Counts for that barrier without waiting at it.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// setmaxnreg: a warpgroup releases registers, or takes released ones.
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Four 8x8 matrices of half-width elements, a row a lane's address.
__device__ __forceinline__ void store_matrices(unsigned row, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(a), "r"(b),
                 "r"(c), "r"(d)
                 : "memory");
}

// Two 8x8 matrices, transposed; of the first sixteen lanes' addresses.
__device__ __forceinline__ void store_matrices_transposed(unsigned row, unsigned a, unsigned b) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(a), "r"(b)
                 : "memory");
}

// --- wgmma ---

// The wgmma descriptor of a tile: 128-byte swizzle, 1024 bytes from eight rows to the next. `chunk_bytes` leads from
// 64 columns to the next 64, for tiles whose rows run along m or n; where rows run along k it has no meaning.
__device__ __forceinline__ unsigned long long descriptor(unsigned address, int chunk_bytes) {
    return (unsigned long long)(address >> 4 & 0x3FFF) | (unsigned long long)(chunk_bytes >> 4) << 16 |
           (unsigned long long)(PATTERN_BYTES >> 4) << 32 | 1ull << 62;
}

// Orders the registers of the sums before the first wgmma that adds to them.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most PENDING of the committed wgmma groups are in flight.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps what uses these registers behind the wait before it: to the compiler a wgmma is over when it is issued.
template <int COUNT>
__device__ __forceinline__ void fence_operand(float (&sums)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

#if defined(KERNELGATE_F16)
#define HOPPER_TYPES "f32.f16.f16"
#else
#define HOPPER_TYPES "f32.bf16.bf16"
#endif

#define HOPPER_TEN(t)                                                                                               \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define HOPPER_FIRST_10 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
#define HOPPER_FIRST_30 HOPPER_FIRST_10 HOPPER_TEN(1) HOPPER_TEN(2)
#define HOPPER_FIRST_60 HOPPER_FIRST_30 HOPPER_TEN(3) HOPPER_TEN(4) HOPPER_TEN(5)
#define HOPPER_FIRST_90 HOPPER_FIRST_60 HOPPER_TEN(6) HOPPER_TEN(7) HOPPER_TEN(8)
#define HOPPER_SUMS_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define HOPPER_SUMS_16(i) HOPPER_SUMS_4(i), HOPPER_SUMS_4(i + 4), HOPPER_SUMS_4(i + 8), HOPPER_SUMS_4(i + 12)
#define HOPPER_SUMS_32(i) HOPPER_SUMS_16(i), HOPPER_SUMS_16(i + 16)

// sums = a * b (+ sums where `add`), 64 x WIDTH x 16. Rows of b run along n in shared memory where B_ACROSS is 1, along k
// where it is 0; those of a likewise along m or k. A lane holds columns 8 j + lane % 4 * 2 (+ 1) of rows lane / 4
// (sums[4 j], sums[4 j + 1]) and lane / 4 + 8 (the next two) of its warp's sixteen rows.
template <int WIDTH, int B_ACROSS, int A_ACROSS = 0>
struct Wgmma;

#define HOPPER_WGMMA(WIDTH, REGISTERS, A, B, ADD, A_ORDER, B_ORDER, ...)                                          \
    template <int B_ACROSS, int A_ACROSS>                                                                           \
    struct Wgmma<WIDTH, B_ACROSS, A_ACROSS> {                                                                     \
        static __device__ __forceinline__ void add(float (&sums)[WIDTH / 2], unsigned long long a,                  \
                                                   unsigned long long b, int add) {                                 \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD ", 0;\n"                                       \
                         "wgmma.mma_async.sync.aligned.m64n" #WIDTH "k16." HOPPER_TYPES " {" REGISTERS "}, " A      \
                         ", " B ", add, 1, 1, " A_ORDER ", " B_ORDER ";\n}"                                         \
                         : __VA_ARGS__                                                                              \
                         : "l"(a), "l"(b), "r"(add), "n"(A_ACROSS), "n"(B_ACROSS));                                 \
        }                                                                                                           \
    }

HOPPER_WGMMA(8, "%0, %1, %2, %3", "%4", "%5", "%6", "%7", "%8", HOPPER_SUMS_4(0));
HOPPER_WGMMA(16, "%0, %1, %2, %3, %4, %5, %6, %7", "%8", "%9", "%10", "%11", "%12", HOPPER_SUMS_4(0),
               HOPPER_SUMS_4(4));
HOPPER_WGMMA(32, HOPPER_FIRST_10 "%10, %11, %12, %13, %14, %15", "%16", "%17", "%18", "%19", "%20",
               HOPPER_SUMS_16(0));
HOPPER_WGMMA(64, HOPPER_FIRST_30 "%30, %31", "%32", "%33", "%34", "%35", "%36", HOPPER_SUMS_32(0));
HOPPER_WGMMA(128, HOPPER_FIRST_60 "%60, %61, %62, %63", "%64", "%65", "%66", "%67", "%68", HOPPER_SUMS_32(0),
               HOPPER_SUMS_32(32));
HOPPER_WGMMA(192, HOPPER_FIRST_90 "%90, %91, %92, %93, %94, %95", "%96", "%97", "%98", "%99", "%100",
               HOPPER_SUMS_32(0), HOPPER_SUMS_32(32), HOPPER_SUMS_32(64));
HOPPER_WGMMA(256,
               HOPPER_FIRST_90 HOPPER_TEN(9) HOPPER_TEN(10) HOPPER_TEN(11)
               "%120, %121, %122, %123, %124, %125, %126, %127",
               "%128", "%129", "%130", "%131", "%132", HOPPER_SUMS_32(0), HOPPER_SUMS_32(32), HOPPER_SUMS_32(64),
               HOPPER_SUMS_32(96));

// The same with a in registers: lane's rows lane / 4 and lane / 4 + 8 of its warp's sixteen, columns lane % 4 * 2 (+ 1)
// of the first eight (a[0], a[1]) and of the last eight (a[2], a[3]), which is how it holds sums. b runs along n.
template <int WIDTH>
struct WgmmaRegisterA;

#define HOPPER_WGMMA_REGISTER_A(WIDTH, REGISTERS, A, B, ADD, ...)                                                       \
    template <>                                                                                                     \
    struct WgmmaRegisterA<WIDTH> {                                                                                     \
        static __device__ __forceinline__ void add(float (&sums)[WIDTH / 2], const unsigned (&a)[4],                \
                                                   unsigned long long b, int add) {                                 \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD ", 0;\n"                                       \
                         "wgmma.mma_async.sync.aligned.m64n" #WIDTH "k16." HOPPER_TYPES " {" REGISTERS "}, {" A     \
                         "}, " B ", add, 1, 1, 1;\n}"                                                               \
                         : __VA_ARGS__                                                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                           \
        }                                                                                                           \
    }

HOPPER_WGMMA_REGISTER_A(64, HOPPER_FIRST_30 "%30, %31", "%32, %33, %34, %35", "%36", "%37", HOPPER_SUMS_32(0));
HOPPER_WGMMA_REGISTER_A(128, HOPPER_FIRST_60 "%60, %61, %62, %63", "%64, %65, %66, %67", "%68", "%69", HOPPER_SUMS_32(0),
                    HOPPER_SUMS_32(32));

}  // namespace hopper
