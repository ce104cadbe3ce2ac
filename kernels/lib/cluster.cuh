// Communication between blocks: within a cluster (compute capability 9.0 and up), and through counters in global memory.
#pragma once

// Blocks of this one's cluster: 1 where there is none.
__device__ __forceinline__ unsigned cluster_size() {
    unsigned blocks;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    return blocks;
}

// The two halves of a barrier of all blocks of the cluster.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// The first half, of a thread that has written nothing the others are to see but fresh mbarriers, behind their fence.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// The same place in the shared memory of block `rank`.
__device__ __forceinline__ float* mapa_generic(float* own, unsigned rank) {
    float* there;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(own), "r"(rank));
    return there;
}

// Sends a packet to the same address in block `rank`, announced at the same mbarrier there.
__device__ __forceinline__ void st_async_packet(unsigned to, unsigned barrier, unsigned rank, uint4 packet) {
    asm volatile(
        "{\n.reg .b32 there, object;\n"
        "mapa.shared::cluster.u32 there, %0, %2;\nmapa.shared::cluster.u32 object, %1, %2;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [there], {%3, %4, %5, %6}, [object];\n}" ::"r"(
            to),
        "r"(barrier), "r"(rank), "r"(packet.x), "r"(packet.y), "r"(packet.z), "r"(packet.w)
        : "memory");
}

// The same address in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ unsigned mapa_shared(unsigned own, unsigned rank) {
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
    return there;
}

// Sends numbers to such an address, announced at a mbarrier of the same block.
__device__ __forceinline__ void st_async_1(unsigned to, unsigned barrier, float a) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %2, [%1];" ::"r"(to),
                 "r"(barrier), "r"(__float_as_uint(a))
                 : "memory");
}
__device__ __forceinline__ void st_async_2(unsigned to, unsigned barrier, float a, float b) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%2, %3}, [%1];" ::"r"(to),
                 "r"(barrier), "r"(__float_as_uint(a)), "r"(__float_as_uint(b))
                 : "memory");
}
__device__ __forceinline__ void st_async_4(unsigned to, unsigned barrier, float a, float b, float c, float d) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(to),
        "r"(barrier), "r"(__float_as_uint(a)), "r"(__float_as_uint(b)), "r"(__float_as_uint(c)),
        "r"(__float_as_uint(d))
        : "memory");
}

// Adds one, or goes from `most` to zero, and returns what was there. What this thread has written or seen before is seen
// by whoever counts after it.
__device__ __forceinline__ unsigned atomic_inc_wrap(unsigned* counter, unsigned most) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(counter)), "r"(most)
                 : "memory");
    return before;
}

// Adds to a counter, and returns what was there, with the same order.
__device__ __forceinline__ unsigned count(unsigned* counter, unsigned more) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(counter)), "r"(more)
                 : "memory");
    return before;
}

// Adds to it, in no order.
__device__ __forceinline__ void red_add_relaxed(unsigned* counter, unsigned more) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(counter)), "r"(more)
                 : "memory");
}

// A number for another block that says itself that it is there: both halves of a word become visible at once.
__device__ __forceinline__ void store_flagged(unsigned long long* to, float number) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(to)),
                 "l"(1ull << 32 | __float_as_uint(number))
                 : "memory");
}
__device__ __forceinline__ void clear_flagged(unsigned long long* to) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "l"(0ull) : "memory");
}
// Whether there is one.
__device__ __forceinline__ bool load_flagged(const unsigned long long* from, float& number) {
    unsigned long long word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(__cvta_generic_to_global(from)) : "memory");
    number = __uint_as_float(unsigned(word));
    return word >> 32;
}
