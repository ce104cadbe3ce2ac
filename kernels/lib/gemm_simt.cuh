// Matrix products in f32 by fma, for any operand order, epilogue and order of c: c[m,n] = epilogue(the sum over k of
// a[m,k] * b[k,n]). A factor brings slices of an operand into shared memory: here of matrices that are K-major or MN-major.
//
// Letters: m rows of a and c, n columns of b and c, k the summed extent. A slice is 8 of k.
#pragma once
#include "async.cuh"
#include "gemm.cuh"

namespace {

constexpr int SLICE = 8;
constexpr int STAGES = 4;
constexpr int THREADS = 128;
constexpr int RUN_LEN = 4;
// Over so many k of a slice the copies of a coming one are spread: the loads of the next k would wait behind all of them.
constexpr int FETCH_STEPS = 4;
constexpr int ROW_STEP = 16;  // a thread's rows come in runs of four, its columns too: a warp then reads neighbours
constexpr int COL_STEP = 32;

// Rows and columns of c a block. 16 x 8 outputs a thread, of 128 x 128, read the least shared memory for a multiply-add.
template <int M_, int N_>
struct Tile {
    static constexpr int M = M_;
    static constexpr int N = N_;
    static constexpr int COLS = 8;  // of c a thread
    static constexpr int ROWS = M * N / THREADS / COLS;
    static constexpr int RUNS = ROWS * COLS / RUN_LEN;  // of neighbouring outputs a thread, two a row
    static constexpr int WARP_M = 4 * ROWS;             // a warp is 4 x 8 threads
    static constexpr int WARP_N = 8 * COLS;
    static constexpr int WARPS_N = N / WARP_N;
    static_assert(M % WARP_M == 0 && N % WARP_N == 0, "whole warps");
};

// Slices of both operands: those of a operand along k transposed, so that a thread reads its rows of one k side by side.
template <class FactorA, class FactorB>
struct Stage {
    float a[SLICE][FactorA::PITCH];
    float b[SLICE][FactorB::PITCH];
};

// What a block does of a product: its number among the blocks of the product, into how many parts k is cut, and how many
// products leave the sums of a part before those of the next part come.
struct Share {
    int block;
    int parts;
    int batch;
};

// Of the only product of a launch.
__device__ __forceinline__ Share one_product(int parts) { return {(int)blockIdx.x, parts, 1}; }

// Brings slices of EXTENT rows of a operand whose rows run along k into shared memory, one after the other. `k_left` is what
// is behind the slices that were fetched: what lies beyond is zeros. A slice is fetched in FETCH_STEPS steps. Fewer than 2^32
// units lie between the rows of a tile.
template <int EXTENT_, class Unit = char>
struct KMajor {
    static constexpr int EXTENT = EXTENT_;
    static constexpr int PITCH = EXTENT + 4;      // eight of k and four rows, as a warp writes them, are in different banks
    static constexpr int STEP = THREADS / SLICE;  // rows that all threads copy at once
    static constexpr int COPIES = EXTENT / STEP;

    const float* next;
    unsigned offset[COPIES];  // in units: where these are bytes, two additions find a row

    __device__ __forceinline__ KMajor(const float* factor, int first, int rows, int k, int k0) {
        next = factor + (long long)first * k + k0 + k_of();
        // Rows past the last are read as the last: nobody stores what comes of them.
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            offset[i] = unsigned(min(row_of() + i * STEP, rows - 1 - first)) * k * unsigned(sizeof(float) / sizeof(Unit));
        }
    }
    static __device__ __forceinline__ int k_of() { return threadIdx.x % SLICE; }
    static __device__ __forceinline__ int row_of() { return threadIdx.x / SLICE; }

    __device__ __forceinline__ void fetch(float (&slice)[SLICE][PITCH], int k_left, int step) {
        const unsigned to = shared_address(&slice[k_of()][row_of()]);
        const bool inside = k_of() < k_left;
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            if (i * FETCH_STEPS / COPIES != step) continue;
            copy_async<4>(to + i * STEP * 4, reinterpret_cast<const Unit*>(next) + offset[i], inside);
        }
        if (step == FETCH_STEPS - 1) next += SLICE;
    }
};

// The same for EXTENT columns of a operand whose rows run along its `cols` columns. ALIGNED promises that those are a
// multiple of RUN_LEN.
template <int EXTENT_, bool ALIGNED>
struct MnMajor {
    static constexpr int EXTENT = EXTENT_;
    static constexpr int PITCH = EXTENT;
    static constexpr int STEP = THREADS / (EXTENT / RUN_LEN);
    static constexpr int COPIES = SLICE / STEP;

    const float* next;
    int cols;
    int cols_left;  // from this thread's first column on

    __device__ __forceinline__ MnMajor(const float* factor, int first, int cols, int, int k0)
        : cols(cols), cols_left(cols - first - col_of()) {
        next = factor + (long long)(k0 + k_of()) * cols + first + col_of();
    }
    static __device__ __forceinline__ int k_of() { return threadIdx.x / (EXTENT / RUN_LEN); }
    static __device__ __forceinline__ int col_of() { return threadIdx.x % (EXTENT / RUN_LEN) * RUN_LEN; }

    __device__ __forceinline__ void fetch(float (&slice)[SLICE][PITCH], int k_left, int step) {
        const unsigned first = shared_address(&slice[k_of()][col_of()]);
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            if (i * FETCH_STEPS / COPIES != step) continue;
            const unsigned to = first + i * STEP * PITCH * 4;
            const float* from = next + i * STEP * cols;
            const bool inside = k_of() + i * STEP < k_left;
            if (ALIGNED) {
                copy_async<16>(to, from, inside && cols_left > 0);
            } else {
#pragma unroll
                for (int e = 0; e < RUN_LEN; ++e) copy_async<4>(to + e * 4, from + e, inside && cols_left > e);
            }
        }
        if (step == FETCH_STEPS - 1) next += (long long)SLICE * cols;
    }
};

// What a thread multiplies at once: one k of its rows of a and columns of b.
template <class Block>
struct Parts {
    float a[Block::ROWS];
    float b[Block::COLS];

    template <class Stage>
    __device__ __forceinline__ void load(const Stage& stage, int i, int row, int col) {
#pragma unroll
        for (int r = 0; r < Block::ROWS; r += 4) {
            *reinterpret_cast<float4*>(&a[r]) = *reinterpret_cast<const float4*>(&stage.a[i][row + r / 4 * ROW_STEP]);
        }
#pragma unroll
        for (int q = 0; q < Block::COLS; q += 4) {
            *reinterpret_cast<float4*>(&b[q]) = *reinterpret_cast<const float4*>(&stage.b[i][col + q / 4 * COL_STEP]);
        }
    }
};

// How the sums of a block run along k: in stretches of so many slices, after each of which they join totals that lie behind
// the stages in shared memory. Sums and totals together are more than a thread has registers. gemm and linear sum all in one
// stretch and have this too: quads that move as one lie in the banks that the products want (8 % of linear's product).
template <class Block>
struct InStretches {
    using Sums = float[Block::ROWS][Block::COLS];
    int stretch;
    int end;        // the slice before which the sums join the totals
    float4* totals;  // of this thread; neighbouring threads lie side by side

    explicit __device__ __forceinline__ InStretches(int stretch) : stretch(stretch) {}
    __device__ __forceinline__ void start(void* memory, int slices) {
        end = stretch;
        totals = static_cast<float4*>(memory) + threadIdx.x;
        if (slices <= stretch) return;
#pragma unroll
        for (int i = 0; i < Block::RUNS; ++i) totals[i * THREADS] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    // Leaves in `sums` what they and the totals come to.
    __device__ __forceinline__ void add(Sums& sums) const {
#pragma unroll
        for (int i = 0; i < Block::RUNS; ++i) {
            const float4 total = totals[i * THREADS];
            float* const sum = &sums[i / 2][i % 2 * 4];
            sum[0] += total.x;
            sum[1] += total.y;
            sum[2] += total.z;
            sum[3] += total.w;
        }
    }
    // Puts `sums` in the place of the totals.
    __device__ __forceinline__ void put(const Sums& sums) const {
#pragma unroll
        for (int i = 0; i < Block::RUNS; ++i) {
            const float* const sum = &sums[i / 2][i % 2 * 4];
            totals[i * THREADS] = make_float4(sum[0], sum[1], sum[2], sum[3]);
        }
    }
    __device__ __forceinline__ void before(int slice, Sums& sums) {
        if (slice != end) return;
        end += stretch;
        add(sums);
        put(sums);
#pragma unroll
        for (int r = 0; r < Block::ROWS; ++r) {
#pragma unroll
            for (int q = 0; q < Block::COLS; ++q) sums[r][q] = 0.0f;
        }
    }
    __device__ __forceinline__ void finish(Sums& sums) const {
        if (end != stretch) add(sums);
    }
};

// Whether an output may differ from its sum.
template <class Epilogue>
constexpr bool CHANGES = true;
template <>
constexpr bool CHANGES<Unchanged> = false;

// Where outputs are stored: in rows of n columns. `aligned` promises that n is a multiple of RUN_LEN.
struct RowMajor {
    bool aligned;
    // Before all stores: a thread's runs begin in two columns.
    __device__ __forceinline__ void start(int, int, const int (&)[2]) {}
    __device__ __forceinline__ void store(float* __restrict__ out, int m, int n, int row, int col, int,
                                          const float (&run)[RUN_LEN]) const {
        store_run<RUN_LEN>(out, m, n, row, col, run, aligned);
    }
};

// One tile, or one part of its k: the sums of a part are stored as they are. The sums run in stretches of so many slices.
template <class FactorA, class FactorB, class SourceA, class SourceB, class Order, class Epilogue>
__device__ __forceinline__ void multiply(const SourceA& a, const SourceB& b, float* __restrict__ out, int m, int n, int k,
                                         const Share& work, Order order, const Epilogue& epilogue, int stretch) {
    extern __shared__ __align__(16) unsigned char shared[];
    using Slices = Stage<FactorA, FactorB>;
    using Block = Tile<FactorA::EXTENT, FactorB::EXTENT>;
    Slices* stages = reinterpret_cast<Slices*>(shared);
    const int parts = work.parts;
    const int tiles_m = tiles(m, Block::M);
    const int tiles_n = tiles(n, Block::N);
    const int part = work.block / (tiles_m * tiles_n);
    TileOrigin tile = tile_of(work.block - part * tiles_m * tiles_n, tiles_m, tiles_n);
    tile = {tile.row * Block::M, tile.col * Block::N};
    const int share = tiles(tiles(k, SLICE), parts) * SLICE;
    const int k0 = min(k, part * share);
    const int k1 = min(k, k0 + share);
    const int slices = (k1 - k0 + SLICE - 1) / SLICE;
    FactorA of_a(a, tile.row, m, k, k0);
    FactorB of_b(b, tile.col, n, k, k0);
    int k_left = k1 - k0;  // behind the slices that were fetched
    auto fetch = [&](Slices& stage, int step) {
        of_a.fetch(stage.a, k_left, step);
        of_b.fetch(stage.b, k_left, step);
        if (step < FETCH_STEPS - 1) return;
        k_left -= SLICE;
        copy_async_commit();
    };

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int row = warp / Block::WARPS_N * Block::WARP_M + lane / 8 * 4;
    const int col = warp % Block::WARPS_N * Block::WARP_N + lane % 8 * 4;

    // Slices past the last are fetched (as zeros) and loaded too: a branch here would keep the compiler from moving the
    // loads between the multiply-adds.
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
#pragma unroll
        for (int step = 0; step < FETCH_STEPS; ++step) fetch(stages[stage], step);
    }
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    float sums[Block::ROWS][Block::COLS] = {};
    InStretches<Block> scheduler(stretch);
    scheduler.start(stages + STAGES, slices);
    Parts<Block> parts_of_k[2];
    parts_of_k[0].load(stages[0], 0, row, col);
    int stage = 0;
    for (int slice = 0; slice < slices; ++slice) {
        const int next = stage + 1 == STAGES ? 0 : stage + 1;
        scheduler.before(slice, sums);
#pragma unroll
        for (int i = 0; i < SLICE; ++i) {
            Parts<Block>& coming = parts_of_k[(i + 1) % 2];
            if (i + 1 < SLICE) {
                coming.load(stages[stage], i + 1, row, col);
            } else {
                copy_async_wait<STAGES - 2>();
                __syncthreads();
                coming.load(stages[next], 0, row, col);
            }
            // Into the stage before this one: everyone is done with it since the last barrier.
            if (i < FETCH_STEPS) fetch(stages[stage == 0 ? STAGES - 1 : stage - 1], i);
            const Parts<Block>& now = parts_of_k[i % 2];
            // Columns to and fro: each multiply-add keeps a factor of the one before it, so it reads two registers, the
            // sum from one bank and the other operand from the other. A third read costs a cycle.
#pragma unroll
            for (int r = 0; r < Block::ROWS; ++r) {
#pragma unroll
                for (int turn = 0; turn < Block::COLS; ++turn) {
                    const int q = r % 2 ? Block::COLS - 1 - turn : turn;
                    sums[r][q] = fmaf(now.a[r], now.b[q], sums[r][q]);
                }
            }
        }
        stage = next;
    }
    copy_async_wait<0>();
    scheduler.finish(sums);

    out += (long long)part * m * n * work.batch;
    // Where the i-th run of this thread's outputs stands.
    const auto row_of = [&](int i) { return tile.row + row + i / 2 / 4 * ROW_STEP + i / 2 % 4; };
    const auto col_of = [&](int i) { return tile.col + col + i % 2 * COL_STEP; };
    order.start(m, n, {col_of(0), col_of(1)});
    if (CHANGES<Epilogue> && parts == 1) {
        // By way of the totals' memory, in a loop. What is done to a sum in its register decides where the compiler keeps
        // it, and with that how often a multiply-add waits: 6 % of linear.
        scheduler.put(sums);
#pragma unroll 2
        for (int i = 0; i < Block::RUNS; ++i) {
            const float4 sum = scheduler.totals[i * THREADS];
            float run[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
            for (int e = 0; e < 4; ++e) run[e] = epilogue.of_one(run[e], row_of(i), col_of(i) + e);
            order.store(out, m, n, row_of(i), col_of(i), i % 2, run);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < Block::RUNS; ++i) {
        const float* const sum = &sums[i / 2][i % 2 * 4];
        const float run[4] = {sum[0], sum[1], sum[2], sum[3]};
        order.store(out, m, n, row_of(i), col_of(i), i % 2, run);
    }
}

// The outputs of `parts` matrices of sums, `n` columns wide, that stand one behind the other.
template <class Epilogue>
__device__ __forceinline__ void split_k_reduce(const float* __restrict__ sums, float* __restrict__ c, long long count, int n,
                                          int parts, const Epilogue& epilogue) {
    const long long i = (long long)blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    float sum = sums[i];
    for (int part = 1; part < parts; ++part) sum += sums[part * count + i];
    c[i] = epilogue.of_one(sum, int(i / n), int(i % n));
}

}  // namespace
