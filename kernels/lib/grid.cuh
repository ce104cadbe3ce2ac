// Words in global memory by which blocks of a grid wait for each other.
#pragma once

// Words that say themselves whether they are there, of which each is read or written whole.
__device__ __forceinline__ void store_relaxed(unsigned* to, unsigned value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "r"(value));
}
__device__ __forceinline__ uint4 load_relaxed(const uint4* from) {
    uint4 value;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(__cvta_generic_to_global(from)));
    return value;
}
