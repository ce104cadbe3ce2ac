// Kernels that the gate itself launches around a candidate's.

// Holds the stream for `nanoseconds` while the host enqueues a timed batch behind it, and reads the core clock:
// out[0] cycles passed in out[1] nanoseconds. Also a planted delay, when `out` is null.
extern "C" __global__ void kernelgate_gate(unsigned long long nanoseconds, unsigned long long* out) {
    unsigned long long begun, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
    const long long cycles = clock64();
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begun < nanoseconds);
    if (out != nullptr) {
        out[0] = static_cast<unsigned long long>(clock64() - cycles);
        out[1] = now - begun;
    }
}

// Leaves `word` all over the shared memory of every multiprocessor: a candidate that reads what it did not write
// there finds NaN, not the zeros that a fresh context happens to hold.
extern "C" __global__ void kernelgate_dirty(unsigned word, int words) {
    extern __shared__ volatile unsigned shared[];
    for (int i = threadIdx.x; i < words; i += blockDim.x) shared[i] = word;
}

// Counts the bytes in which two ranges differ.
extern "C" __global__ void kernelgate_diff(const unsigned char* a, const unsigned char* b, unsigned long long bytes,
                                           unsigned long long* count) {
    const unsigned long long step = 1ull * gridDim.x * blockDim.x;
    const unsigned long long first = 1ull * blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long different = 0;
    const unsigned long long words = bytes / 16;
    for (unsigned long long i = first; i < words; i += step) {
        const uint4 x = reinterpret_cast<const uint4*>(a)[i], y = reinterpret_cast<const uint4*>(b)[i];
        different += x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w;
    }
    for (unsigned long long i = words * 16 + first; i < bytes; i += step) different += a[i] != b[i];
    if (different) atomicAdd(count, different);
}
