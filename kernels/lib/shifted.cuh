// 16 bytes from anywhere in memory, by whole words.
#pragma once

// The 16 bytes that begin `bytes` into a and run on into b, 0 <= bytes < 16.
__device__ __forceinline__ uint4 shifted(const uint4& a, const uint4& b, int bytes) {
    const unsigned int words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    unsigned int by_two[6], by_one[5], result[4];
#pragma unroll
    for (int i = 0; i < 6; ++i) {
        by_two[i] = bytes & 8 ? words[i + 2] : words[i];
    }
#pragma unroll
    for (int i = 0; i < 5; ++i) {
        by_one[i] = bytes & 4 ? by_two[i + 1] : by_two[i];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        result[i] = __funnelshift_r(by_one[i], by_one[i + 1], 8 * (bytes & 3));
    }
    return make_uint4(result[0], result[1], result[2], result[3]);
}
