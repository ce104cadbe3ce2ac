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

// A step of a model that reads: lets the launch behind begin, if that may, waits for the end of the one ahead if this may begin
// before it, and reads `units` of 16 bytes. `out` is null; the compiler does not know.
extern "C" __global__ void kernelgate_read(const uint4* x, unsigned long long units, unsigned* out) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    const unsigned long long step = 1ull * gridDim.x * blockDim.x;
    unsigned words = 0;
#pragma unroll 4
    for (unsigned long long i = 1ull * blockIdx.x * blockDim.x + threadIdx.x; i < units; i += step) {
        words |= x[i].x ^ x[i].y ^ x[i].z ^ x[i].w;
    }
    if (out != nullptr) atomicOr(out, words);
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

// One of the 24 orders of the four words of a unit: a block of inputs that comes back at its old place, because two sets are
// rotated by whole blocks from each other, then still holds other values.
__device__ uint4 reordered(uint4 v, unsigned order) {
    const uint4 swapped = order % 4 == 0 ? v : order % 4 == 1 ? make_uint4(v.y, v.x, v.z, v.w)
                          : order % 4 == 2 ? make_uint4(v.z, v.y, v.x, v.w) : make_uint4(v.w, v.y, v.z, v.x);
    order = order / 4 % 6;
    const uint4 u = order % 3 == 0 ? swapped : order % 3 == 1 ? make_uint4(swapped.x, swapped.z, swapped.y, swapped.w)
                                             : make_uint4(swapped.x, swapped.w, swapped.z, swapped.y);
    return order < 3 ? u : make_uint4(u.x, u.y, u.w, u.z);
}

// What a timed launch meets: in each of gridDim.y sets, which lie `stride` bytes apart from `base` on, every input of
// `source` rotated by a number of units that no set had before, the words of wide units reordered (those of the case itself
// in set `of_case`), and `poison` in every output. `slots` has three words a buffer: its offset, its bytes, and the bytes of a unit, 0 for an output.
extern "C" __global__ void kernelgate_refresh(const unsigned long long* slots, int count, unsigned char* base,
                                              unsigned long long stride, const unsigned char* source,
                                              unsigned long long turn, int of_case, unsigned poison) {
    const unsigned long long step = 1ull * gridDim.x * blockDim.x;
    const unsigned long long first = 1ull * blockIdx.x * blockDim.x + threadIdx.x;
    unsigned char* image = base + blockIdx.y * stride;
    const unsigned long long spread = ((turn + blockIdx.y) * 0x9E3779B1ull) | 1ull;
    for (int slot = 0; slot < count; ++slot) {
        const unsigned long long offset = slots[3 * slot], bytes = slots[3 * slot + 1], unit = slots[3 * slot + 2];
        if (bytes == 0) continue;
        if (unit == 0) {
            const unsigned long long words = offset % 16 == 0 ? bytes / 16 : 0;
            const uint4 word = make_uint4(poison, poison, poison, poison);
            for (unsigned long long i = first; i < words; i += step) reinterpret_cast<uint4*>(image + offset)[i] = word;
            for (unsigned long long i = 16 * words + first; i < bytes; i += step) image[offset + i] = poison & 0xff;
            continue;
        }
        const unsigned long long units = bytes / unit;
        const bool is_case = int(blockIdx.y) == of_case;
        const unsigned long long shift = is_case ? 0 : spread % units;
        const unsigned order = is_case ? 0 : static_cast<unsigned>(spread >> 32) % 24;
        for (unsigned long long i = first; i < units; i += step) {
            const unsigned long long from = i + shift < units ? i + shift : i + shift - units;
            if (unit == 16) {
                reinterpret_cast<uint4*>(image + offset)[i] =
                    reordered(reinterpret_cast<const uint4*>(source + offset)[from], order);
            } else if (unit == 4) {
                reinterpret_cast<unsigned*>(image + offset)[i] =
                    reinterpret_cast<const unsigned*>(source + offset)[from];
            } else {
                reinterpret_cast<unsigned short*>(image + offset)[i] =
                    reinterpret_cast<const unsigned short*>(source + offset)[from];
            }
        }
    }
}

// Reads `words` words of 16 bytes: what the caches held before, and what was written there and not yet to memory, is gone.
extern "C" __global__ void kernelgate_sweep(const uint4* from, unsigned long long words, unsigned* never) {
    const unsigned long long step = 1ull * gridDim.x * blockDim.x;
    unsigned seen = 0;
    for (unsigned long long i = 1ull * blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        const uint4 word = from[i];
        seen += word.x ^ word.y ^ word.z ^ word.w;
    }
    // The buffer holds zeros.
    if (seen != 0) *never = seen;
}
