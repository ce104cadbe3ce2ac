// The tile scheduler of the warpgroup kernels: which KV blocks of which heads a CTA group takes, and in what order.
//
// A KV block is 64 keys of a head, 32 in f32. Where heads do not fill the device evenly (stream-K), CTA groups have as many KV
// blocks each all the same: the end of a head whose start the CTA group before has, a whole head, and the start of another one.
// The partial of the latter is needed by the next CTA group, so that work tile comes first. No CTA group has less than a head
// then, so a head belongs to two at most. Of few heads, several CTA groups share one (split-KV).
#pragma once
#include "hopper.cuh"

namespace warpgroup {

constexpr int KEYS = hopper::ROW_BYTES / int(sizeof(scalar_t));  // of a KV block: 64, or 32 in f32
constexpr int BATCH_BLOCKS = 8;                                   // of a batch

// How KV blocks are split.
struct Split {
    int kv_blocks;     // of a head
    int share;      // heads of all CTA groups under stream-K, or KV blocks of a CTA group under split-KV
    int cta_group_bits;  // of CTA groups under stream-K, a power of two
    int split_bits;  // of the blocks of a CTA group
    int stages;     // KV blocks of a group that are in flight
};

// A work tile: consecutive KV blocks of a head.
struct WorkTile {
    int head;
    int first;
    int kv_blocks;
};
enum TileKind { WHOLE_HEAD, HEAD_START, HEAD_END, TILE_KINDS };

// What CTA groups have: a head each, equal shares of all heads, or a part of the same head.
enum Schedule { WHOLE_HEADS, STREAM_K, SPLIT_KV };

template <Schedule SCHEDULE>
struct TileScheduler {
    static constexpr int TILES = SCHEDULE == STREAM_K ? TILE_KINDS : 1;

    const int cta_group, kv_blocks;        // a CTA group among all, or of a head; KV blocks of a head
    int head, next;                // the first one, and the one whose start this CTA group has
    int begun, start_blocks, end_blocks, total;  // KV blocks

    __device__ __forceinline__ TileScheduler(const Split& split, int cta_group)
        : cta_group(cta_group), kv_blocks(split.kv_blocks) {
        const int from = cta_group * split.share, to = from + split.share;
        head = from >> split.cta_group_bits;
        next = to >> split.cta_group_bits;
        const int first = from * kv_blocks >> split.cta_group_bits, end = to * kv_blocks >> split.cta_group_bits;
        begun = first - head * kv_blocks;
        start_blocks = end - next * kv_blocks;
        end_blocks = begun > 0 ? kv_blocks - begun : 0;
        total = end - first;
        if (SCHEDULE == WHOLE_HEADS) head = cta_group, total = kv_blocks;
        if (SCHEDULE != STREAM_K) start_blocks = end_blocks = 0;
        begun = 0;
        if (SCHEDULE == SPLIT_KV) {
            head = blockIdx.y;
            begun = from;
            total = min(to, kv_blocks) - from;
        }
    }

    // Work tiles in the order in which they are taken: the start of a head, the end of one, a whole one.
    static constexpr int FIRST = SCHEDULE == STREAM_K ? HEAD_START : TILE_KINDS;
    static constexpr int LAST = TILE_KINDS;
    static __device__ __forceinline__ constexpr int kind(int i) { return i % TILE_KINDS; }

    __device__ __forceinline__ WorkTile tile(int kind) const {
        if (kind == HEAD_START) return {next, 0, start_blocks};
        if (kind == HEAD_END) return {head, kv_blocks - end_blocks, end_blocks};
        return {head + (end_blocks > 0), begun, total - start_blocks - end_blocks};
    }
    __device__ __forceinline__ int begins(int kind) const { return kind == HEAD_START ? 0 : kind == HEAD_END ? start_blocks : start_blocks + end_blocks; }
    __device__ __forceinline__ int ends(int kind) const { return kind == HEAD_START ? start_blocks : kind == HEAD_END ? start_blocks + end_blocks : total; }
    __device__ __forceinline__ int kind_of(int kv_block) const { return kv_block < start_blocks ? HEAD_START : kv_block < start_blocks + end_blocks ? HEAD_END : WHOLE_HEAD; }
    __device__ __forceinline__ int last() const { return total > start_blocks + end_blocks ? WHOLE_HEAD : HEAD_END; }
};

// A consumer's KV blocks of a CTA group's: every 2^bits-th. Batches but the first are as long as can be: a short last one would be
// there before its weights are.
struct Stride {
    int bits;

    // Of a work tile that begins so many KV blocks before the consumer's first one, or after one of them.
    __device__ __forceinline__ int first(int ahead) const { return ahead & (1 << bits) - 1; }
    __device__ __forceinline__ int length(int kv_blocks) const { return kv_blocks << bits; }
    __device__ __forceinline__ int count(int from, int end) const { return (end - from + (1 << bits) - 1) >> bits; }
    static __device__ __forceinline__ int of_first_batch(int count) { return (count - 1) % BATCH_BLOCKS + 1; }
};

// What a consumer requests next: of a batch after the other, the keys, then the values.
template <Schedule SCHEDULE>
struct Cursor {
    const TileScheduler<SCHEDULE>& scheduler;
    const Stride stride;
    int at;  // of the CTA group's KV blocks
    int batch, batch_end;
    int tile_end;
    bool keys = true;

    __device__ __forceinline__ Cursor(const TileScheduler<SCHEDULE>& scheduler, int consumer, const Stride& stride)
        : scheduler(scheduler), stride(stride), at(consumer) {}
    __device__ __forceinline__ bool goes_on() const { return at < scheduler.total; }
    __device__ __forceinline__ int head() const { return scheduler.tile(scheduler.kind_of(at)).head; }
    __device__ __forceinline__ int key() const {
        const int kind = scheduler.kind_of(at);
        return (scheduler.tile(kind).first + at - scheduler.begins(kind)) * KEYS;
    }
    // Before the first step.
    __device__ __forceinline__ void begin_tile() {
        tile_end = scheduler.ends(scheduler.kind_of(at));
        batch = at;
        batch_end = at + stride.length(Stride::of_first_batch(stride.count(at, tile_end)));
    }
    __device__ __forceinline__ void next() {
        at += stride.length(1);
        if (at < batch_end) return;
        if (keys) {
            at = batch;
        } else {
            batch = at;
            batch_end = at + stride.length(BATCH_BLOCKS);
            if (at >= tile_end) begin_tile();
        }
        keys = !keys;
    }
};

}  // namespace warpgroup
