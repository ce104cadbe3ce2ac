// Asynchronous copies by lanes (cp.async, compute capability 8.0 and up) into shared memory, past the registers.
#pragma once

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return (unsigned)__cvta_generic_to_shared(pointer);
}

// Starts a copy of 4 or 16 bytes. What is not inside is not read, and the target filled with zeros.
template <int BYTES>
__device__ __forceinline__ void copy_async(unsigned target, const void* source, bool inside) {
    static_assert(BYTES == 4 || BYTES == 16, "what is copied past the registers, by element or by pack");
    if (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target),
                     "l"(__cvta_generic_to_global(source)), "r"(inside ? 16 : 0)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target),
                     "l"(__cvta_generic_to_global(source)), "r"(inside ? 4 : 0)
                     : "memory");
    }
}

__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's groups are still on their way.
template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
