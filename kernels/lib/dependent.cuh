// Programmatic dependent launch: a launch that may begin before the one ahead of it in the stream has ended. A kernel reads
// nothing that an earlier launch writes, and writes nothing that one reads, before it has waited; every kernel of such a
// chain waits, so that whatever ended behind the wait has everything before it behind it.
#pragma once

// Lets the launch behind this one begin as soon as there is room for its blocks.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits for the end of the launch ahead, and sees what it wrote.
__device__ __forceinline__ void wait_for_launch_ahead() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Both, where a kernel begins with what the launch ahead wrote.
__device__ __forceinline__ void begin_dependent_launch() {
    launch_dependents();
    wait_for_launch_ahead();
}

// A pointer to be read through behind the wait. Through a const __restrict__ parameter the compiler loads by ld.global.nc, as of
// memory that nobody writes while the kernel is there, and ptxas moves such loads in front of the wait. Every pointer that a
// waiting kernel reads through comes by here: no entry of them has ld.global.nc, which tests/ptx.rs holds.
template <typename T>
__device__ __forceinline__ const T* behind_wait(const T* pointer) {
    size_t address = __cvta_generic_to_global(pointer);
    asm volatile("" : "+l"(address));
    return static_cast<const T*>(__cvta_global_to_generic(address));
}
