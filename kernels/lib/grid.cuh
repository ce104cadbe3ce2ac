// Words in global memory by which blocks of a grid wait for each other.
#pragma once

// A word for other blocks: whoever sees it by `load_acquire` sees what this thread has written or seen before.
__device__ __forceinline__ void store_release(unsigned* to, unsigned value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "r"(value) : "memory");
}
__device__ __forceinline__ unsigned load_acquire(const unsigned* from) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(from)) : "memory");
    return value;
}
