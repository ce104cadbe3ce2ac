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
