// Where the heads of a new token go: queries on, keys and values into their caches at the token's position, and the rotation
// on the way (element i of a head with element half + i).
#pragma once
#include "common.cuh"
#include "dependent.cuh"

// A pair of elements of the projection of a token: its head, of the queries, then the keys, then the values, and its place
// there.
struct HeadPair {
    int head, element;
    __device__ __forceinline__ HeadPair(int pair, int half) : head(pair / half), element(pair % half) {}
    __device__ __forceinline__ long long row(int half) const { return (long long)head * (2 * half) + element; }
};

// The tensors of an append, as the operators have them.
struct Append {
    const scalar_t *cosine, *sine;  // [capacity, batch, half]
    const int* position;            // [1]
    scalar_t *keys, *values;        // [capacity, batch, kv_heads, 2 * half]
    scalar_t* q;                    // [batch, heads, 2 * half]
    int batch, heads, kv_heads, half;

    // Element `element` and its partner of sequence v, behind the wait.
    __device__ __forceinline__ void store(HeadPair pair, int v, float low, float high) const {
        const long long token = (long long)*behind_wait(position) * batch + v;
        if (pair.head < heads + kv_heads) {
            const float c = to_float(behind_wait(cosine)[token * half + pair.element]);
            const float s = to_float(behind_wait(sine)[token * half + pair.element]);
            const float rotated = low * c - high * s;
            high = high * c + low * s;
            low = rotated;
        }
        scalar_t* to;
        if (pair.head < heads) {
            to = q + ((long long)v * heads + pair.head) * (2 * half);
        } else if (pair.head < heads + kv_heads) {
            to = keys + (token * kv_heads + pair.head - heads) * (2 * half);
        } else {
            to = values + (token * kv_heads + pair.head - heads - kv_heads) * (2 * half);
        }
        to[pair.element] = from_float<scalar_t>(low);
        to[pair.element + half] = from_float<scalar_t>(high);
    }
};
