// LSTM: with p = W x + R h + bias, rows of the gates i, f, g, o one after the other,
//   c = sigmoid(p_f) c + sigmoid(p_i) tanh(p_g); h = sigmoid(p_o) tanh(c)
//   x [steps, batch, inputs]; w [4 hidden, inputs]; w_above [layers - 1, 4 hidden, hidden]; r [layers, 4 hidden, hidden];
//   bias [layers, 4 hidden]; y [steps, batch, hidden]; h, c [layers, batch, hidden]; all of one dtype.
// The arithmetic is f32; what stands in the workspace is said at each kernel.
#include "common.cuh"
#include "lstm_input_gemm.cuh"

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

#if defined(KERNELGATE_F32)
#include "lstm_persistent_simt.cuh"
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "lstm_cluster.cuh"
#include "lstm_input_gemm_wgmma.cuh"
#include "lstm_persistent.cuh"
#endif

// One row of weights times one vector.
template <typename Element>
__device__ __forceinline__ float dot(const scalar_t* weights, const Element* vector, int n) {
    FourSums sums;
#pragma unroll 4
    for (int i = 0; i < n; ++i) {
        sums.add(i, to_float(weights[i]) * to_float(vector[i]));
    }
    return sums.total();
}

// The definition, a cell a thread and a launch a step, so that the states of the step before are all there. Workspace:
// states [layers, steps, batch, hidden], cells [layers, batch, hidden].
// layers * steps launches, layer by layer: grid = ceil(batch * hidden / 128), block = 128, no dynamic shared memory.
extern "C" __global__ void lstm_naive(const scalar_t* __restrict__ x, const scalar_t* __restrict__ w,
                                   const scalar_t* __restrict__ w_above, const scalar_t* __restrict__ r,
                                   const scalar_t* __restrict__ bias, scalar_t* __restrict__ y,
                                   scalar_t* __restrict__ h, scalar_t* __restrict__ c, float* states, int steps,
                                   int batch, int inputs, int hidden, int layers, int layer, int step) {
    const long long cells = (long long)batch * hidden;
    const long long cell = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (cell >= cells) {
        return;
    }
    const int unit = int(cell % hidden);
    const long long sequence = cell / hidden;
    const long long of_layer = steps * cells;
    float* const mine = states + layer * of_layer;
    float* const kept = states + layers * of_layer + layer * cells + cell;
    const float* const before = mine + (step - 1) * cells + sequence * hidden;
    const scalar_t* const of_input = x + (step * (long long)batch + sequence) * inputs;
    const float* const of_below = mine - of_layer + step * cells + sequence * hidden;

    float gates[4];
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
        const long long row = (long long)gate * hidden + unit;
        const long long row_of_layers = (long long)layer * 4 * hidden + row;
        gates[gate] = to_float(bias[row_of_layers]);
        gates[gate] += layer == 0 ? dot(w + row * inputs, of_input, inputs)
                                  : dot(w_above + (row_of_layers - 4 * hidden) * hidden, of_below, hidden);
        if (step > 0) {
            gates[gate] += dot(r + row_of_layers * hidden, before, hidden);
        }
    }
    const float carried = step > 0 ? sigmoid(gates[1]) * *kept : 0.0f;
    const float cell_now = carried + sigmoid(gates[0]) * tanhf(gates[2]);
    const float state = sigmoid(gates[3]) * tanhf(cell_now);
    *kept = cell_now;
    mine[step * cells + cell] = state;
    if (layer == layers - 1) {
        y[step * cells + cell] = from_float<scalar_t>(state);
    }
    if (step == steps - 1) {
        h[layer * cells + cell] = from_float<scalar_t>(state);
        c[layer * cells + cell] = from_float<scalar_t>(cell_now);
    }
}

// == A product for the inputs of all steps, then a launch a step ==================================================

// Numbers of the dtype that a state goes into, so that it keeps the accuracy of f32.
constexpr int STATE_PARTS = sizeof(scalar_t) == 4 ? 1 : 2;

// Workspace of the step and cluster kernels, in words of four bytes:
//   gates    [steps, batch, hidden, 4]  of the inputs of one layer
//   below    [steps, batch, pitch]      states of the first layer of two, in f32, pitch = hidden; at half width two
//                                       numbers whose sum they are [2, ..], pitch = hidden rounded up to 8
//   carried  [3, hidden, batch]         step kernel: states of every other step, cells
//   r        [layers, 4 hidden, pitch]  cluster and persistent kernels: the recurrent weights, where hidden is no multiple
//                                       of 8
// and of the persistent kernel behind that
//   packets  [2, sequences, packets]    states of every other step, of 16 bytes; sequences in sixteens, four units a packet,
//                                       units in sixteens
//   cells    [batch, hidden]            of one layer
//   done     [layers, packets]          what a block has done, of up to so many blocks
struct Workspace {
    float* gates;
    float* below;
    float* carried;
    int pitch;

    __device__ __forceinline__ Workspace(float* start, int steps, int batch, int hidden, int layers) {
        const long long rows = (long long)steps * batch;
        pitch = sizeof(scalar_t) == 4 ? hidden : (hidden + CHUNK - 1) / CHUNK * CHUNK;
        gates = start;
        below = gates + rows * hidden * 4;
        carried = below + (layers == 2 ? rows * pitch : 0);
    }
};

#define LSTM_POINTERS                                                                                                 \
    const scalar_t *__restrict__ x, const scalar_t *__restrict__ w, const scalar_t *__restrict__ w_above,             \
        const scalar_t *__restrict__ r, const scalar_t *__restrict__ bias, scalar_t *__restrict__ y,                  \
        scalar_t *__restrict__ h, scalar_t *__restrict__ c, float *workspace

// The gates of the inputs of all steps. grid = ceil(steps * batch / 128) * ceil(hidden / 32), block = 256; at half width
// dynamic shared memory = 64 KiB.
template <bool ALIGNED>
__device__ __forceinline__ void input_gemm_of_layer(LSTM_POINTERS, int steps, int batch, int inputs, int hidden, int layers,
                                                int layer) {
    const Workspace in(workspace, steps, batch, hidden, layers);
    const bool first = layer == 0;
    lstm::Operands of;
    of.from = first ? x : reinterpret_cast<const scalar_t*>(in.below);
    of.weights = first ? w : w_above;
    of.parts = first ? 1 : STATE_PARTS;
    of.rows = steps * batch;
    of.width = first ? inputs : hidden;
    of.pitch = first ? inputs : in.pitch;
    of.hidden = hidden;
    lstm::input_gemm<ALIGNED>(of, in.gates);
}

// Rows of weights that start at 16 bytes: the width (inputs, or hidden in the second layer) is a multiple of PACK_LEN.
extern "C" __global__ void __launch_bounds__(lstm::PRODUCT_THREADS, 2)
    lstm_input_gemm(LSTM_POINTERS, int steps, int batch, int inputs, int hidden, int layers, int layer) {
    input_gemm_of_layer<true>(x, w, w_above, r, bias, y, h, c, workspace, steps, batch, inputs, hidden, layers, layer);
}

// The same for every width.
extern "C" __global__ void __launch_bounds__(lstm::PRODUCT_THREADS, 2)
    lstm_input_gemm_any(LSTM_POINTERS, int steps, int batch, int inputs, int hidden, int layers, int layer) {
    input_gemm_of_layer<false>(x, w, w_above, r, bias, y, h, c, workspace, steps, batch, inputs, hidden, layers, layer);
}

namespace {
constexpr int STEP_UNITS = 4;
constexpr int QUARTERS = 4;  // of the states before
constexpr int STEP_RUN = 4;
constexpr int STEP_ROWS = STEP_UNITS * lstm::GATES;  // of recurrent weights a block; a warp loads one
constexpr int STEP_CHUNK = 512;                      // of a row at a time
constexpr int SHARE = STEP_CHUNK / QUARTERS;
static_assert(STEP_ROWS == STEP_UNITS * QUARTERS, "a warp a row");
}  // namespace

// What the inputs give is one product of matrices for all steps of a layer (lstm_input_gemm). A launch a step then takes
// 4 units and 32 sequences a block, a quarter of the sums a warp; the states of the step before stand side by side for
// the lanes, a sequence each, and rows of weights come through shared memory.
// grid = ceil(hidden / 4) * ceil(batch / 32), block = 512, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(STEP_UNITS* QUARTERS* WARP, 1)
    lstm_step(LSTM_POINTERS, int steps, int batch, int hidden, int layers, int layer, int step) {
    __shared__ float4 partial[QUARTERS][STEP_UNITS][WARP];
    __shared__ __align__(16) float weights[STEP_ROWS][STEP_CHUNK];
    const Workspace in(workspace, steps, batch, hidden, layers);
    const long long cells = (long long)batch * hidden;
    const int lane = threadIdx.x % WARP;
    const int warp = threadIdx.x / WARP;
    const int within = warp % STEP_UNITS;
    const int quarter = warp / STEP_UNITS;
    const int unit_blocks = (hidden + STEP_UNITS - 1) / STEP_UNITS;
    const int unit = int(blockIdx.x) % unit_blocks * STEP_UNITS + within;
    const int sequence = int(blockIdx.x) / unit_blocks * WARP + lane;
    const bool inside = unit < hidden && sequence < batch;
    const scalar_t* const rows = r + (long long)layer * lstm::GATES * hidden * hidden;

    // What the first warps need behind the sums comes while these are made.
    const bool finishes = quarter == 0 && inside;
    const long long cell = (long long)unit * batch + sequence;
    const long long row = (long long)step * batch + sequence;
    float* const kept = in.carried + 2 * cells + cell;
    float4 of_input = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float cell_before = 0.0f;
    if (finishes) {
        of_input = reinterpret_cast<const float4*>(in.gates)[row * hidden + unit];
        if (step > 0) cell_before = *kept;
    }

    float sums[lstm::GATES] = {};
    const float* const before = in.carried + (step - 1) % 2 * cells + sequence;
    const int warp_unit = unit - within + warp / lstm::GATES;
    const int warp_row = warp_unit < hidden ? warp % lstm::GATES * hidden + warp_unit : lstm::GATES * hidden;
    for (int first = 0; step > 0 && first < hidden; first += STEP_CHUNK) {
        constexpr int RUNS = STEP_CHUNK / (WARP * STEP_RUN);
        Run<STEP_RUN> runs[RUNS];
#pragma unroll
        for (int i = 0; i < RUNS; ++i) {
            const int k = first + (i * WARP + lane) * STEP_RUN;
            runs[i] = load_run<STEP_RUN>(rows, lstm::GATES * hidden, hidden, warp_row, k, hidden % STEP_RUN == 0);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < RUNS; ++i) {
            const auto& run = runs[i].value;
            *reinterpret_cast<float4*>(&weights[warp][(i * WARP + lane) * STEP_RUN]) =
                make_float4(to_float(run[0]), to_float(run[1]), to_float(run[2]), to_float(run[3]));
        }
        __syncthreads();
        const int end = inside ? min(SHARE, hidden - first - quarter * SHARE) : 0;
#pragma unroll 8
        for (int i = 0; i < end; i += STEP_RUN) {
            float states[STEP_RUN];
#pragma unroll
            for (int e = 0; e < STEP_RUN; ++e) {
                const int k = first + quarter * SHARE + i + e;
                states[e] = i + e < end ? before[(long long)k * batch] : 0.0f;
            }
#pragma unroll
            for (int gate = 0; gate < lstm::GATES; ++gate) {
                const float4 row =
                    *reinterpret_cast<const float4*>(&weights[within * lstm::GATES + gate][quarter * SHARE + i]);
                sums[gate] = fmaf(row.x, states[0], sums[gate]);
                sums[gate] = fmaf(row.y, states[1], sums[gate]);
                sums[gate] = fmaf(row.z, states[2], sums[gate]);
                sums[gate] = fmaf(row.w, states[3], sums[gate]);
            }
        }
    }
    partial[quarter][within][lane] = make_float4(sums[0], sums[1], sums[2], sums[3]);
    __syncthreads();
    if (!finishes) return;

    float gates[lstm::GATES] = {of_input.x, of_input.y, of_input.z, of_input.w};
#pragma unroll
    for (int gate = 0; gate < lstm::GATES; ++gate) {
        gates[gate] += to_float(bias[(layer * lstm::GATES + gate) * hidden + unit]);
    }
#pragma unroll
    for (int other = 0; other < QUARTERS; ++other) {
        const float4 part = partial[other][within][lane];
        gates[0] += part.x;
        gates[1] += part.y;
        gates[2] += part.z;
        gates[3] += part.w;
    }
    const float cell_now = sigmoid(gates[1]) * cell_before + sigmoid(gates[0]) * tanhf(gates[2]);
    const float state = sigmoid(gates[3]) * tanhf(cell_now);
    *kept = cell_now;
    in.carried[step % 2 * cells + cell] = state;
    if (layer == layers - 1) {
        y[row * hidden + unit] = from_float<scalar_t>(state);
    } else {
        scalar_t* const below = reinterpret_cast<scalar_t*>(in.below) + row * in.pitch;
        float left = state;
#pragma unroll
        for (int part = 0; part < STATE_PARTS; ++part) {
            scalar_t* const to = below + part * (long long)steps * batch * in.pitch;
            to[unit] = from_float<scalar_t>(left);
            left -= to_float(to[unit]);
            // The product reads whole chunks.
            for (int pad = hidden; unit == hidden - 1 && pad < in.pitch; ++pad) to[pad] = from_float<scalar_t>(0.0f);
        }
    }
    if (step == steps - 1) {
        const long long last = layer * cells + (long long)sequence * hidden + unit;
        h[last] = from_float<scalar_t>(state);
        c[last] = from_float<scalar_t>(cell_now);
    }
}

// == One launch for all steps =====================================================================================

#if defined(KERNELGATE_F32)
// States [layers, words], zeros at first, and cells [batch, hidden] are what the kernel below has behind the gates, from a multiple
// of 16 bytes on.
__device__ __forceinline__ unsigned* simt_states(const Workspace& in) {
    const long long before = in.carried - in.gates;
    return reinterpret_cast<unsigned*>(in.gates + (before + 3) / 4 * 4);
}

// No state is there yet. grid = any, block = 256, no dynamic shared memory.
extern "C" __global__ void lstm_persistent_start(LSTM_POINTERS, int steps, int batch, int hidden, int layers, int words) {
    lstm::clear_states(simt_states(Workspace(workspace, steps, batch, hidden, layers)), (long long)layers * words);
}

// One launch for all steps of a layer, by blocks that run at once and keep the recurrent weights
// (lstm_persistent_simt.cuh). Grid, block and shared memory are said there.
#define LSTM_PERSISTENT(NAME, UNITS)                                                                                  \
    extern "C" __global__ void __launch_bounds__(lstm::SIMT_THREADS, 1)                                               \
        NAME(LSTM_POINTERS, int steps, int batch, int hidden, int layers, int words, int layer, int blocks) {         \
        const Workspace in(workspace, steps, batch, hidden, layers);                                                  \
        lstm::SimtLayer of;                                                                                           \
        of.gates = in.gates;                                                                                          \
        of.r = r + (long long)layer * lstm::GATES * hidden * hidden;                                                  \
        of.bias = bias + (long long)layer * lstm::GATES * hidden;                                                     \
        of.y = layer == layers - 1 ? y : in.below;                                                                    \
        of.h = h + (long long)layer * batch * hidden;                                                                 \
        of.c = c + (long long)layer * batch * hidden;                                                                 \
        of.states = simt_states(in) + (long long)layer * words;                                                       \
        of.cells = reinterpret_cast<float*>(simt_states(in) + (long long)layers * words);                             \
        of.steps = steps;                                                                                             \
        of.batch = batch;                                                                                             \
        of.hidden = hidden;                                                                                           \
        of.blocks = blocks;                                                                                           \
        lstm::recur_simt<UNITS>(of);                                                                                  \
    }
LSTM_PERSISTENT(lstm_persistent_simt_8x8, 8)
LSTM_PERSISTENT(lstm_persistent_simt_16x8, 16)
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
// A layer as a launch for all its steps sees it.
__device__ __forceinline__ lstm::Layer layer_of(LSTM_POINTERS, const Workspace& in, int steps, int batch, int hidden,
                                                int layers, int layer) {
    const long long cells = (long long)batch * hidden;
    lstm::Layer of;
    of.gates = in.gates;
    const scalar_t* const rows = in.pitch == hidden ? r : reinterpret_cast<const scalar_t*>(in.carried);
    of.r = rows + (long long)layer * lstm::GATES * hidden * in.pitch;
    of.bias = bias + (long long)layer * lstm::GATES * hidden;
    of.y = layer == layers - 1 ? y : nullptr;
    of.parts = layer == layers - 1 ? nullptr : reinterpret_cast<scalar_t*>(in.below);
    of.h = h + layer * cells;
    of.c = c + layer * cells;
    of.steps = steps;
    of.batch = batch;
    of.hidden = hidden;
    of.pitch = in.pitch;
    return of;
}

// One launch for all steps of a layer, by clusters that keep the recurrent weights in registers (lstm_cluster.cuh).
// hidden <= 16 * SLICES, sequences <= MOST_SEQUENCES. grid = ceil(batch / sequences) clusters of
// max(2, ceil(hidden / 32)) blocks, block = 256, no dynamic shared memory.
template <int SLICES, int MOST_SEQUENCES>
__device__ __forceinline__ void run_layer(LSTM_POINTERS, int steps, int batch, int hidden, int layers, int layer,
                                          int sequences) {
    const Workspace in(workspace, steps, batch, hidden, layers);
    const lstm::Layer of = layer_of(x, w, w_above, r, bias, y, h, c, workspace, in, steps, batch, hidden, layers, layer);
    lstm::recur<SLICES, MOST_SEQUENCES>(of, sequences);
}

#define LSTM_CLUSTER(NAME, SLICES, MOST_SEQUENCES)                                                                  \
    extern "C" __global__ void __launch_bounds__(lstm::RECUR_THREADS, 1)                                       \
        NAME(LSTM_POINTERS, int steps, int batch, int hidden, int layers, int layer, int sequences) {          \
        run_layer<SLICES, MOST_SEQUENCES>(x, w, w_above, r, bias, y, h, c, workspace, steps, batch, hidden,    \
                                          layers, layer, sequences);                                           \
    }
LSTM_CLUSTER(lstm_cluster_128x4, 8, 4)
LSTM_CLUSTER(lstm_cluster_256x4, 16, 4)
LSTM_CLUSTER(lstm_cluster_384x4, 24, 4)
LSTM_CLUSTER(lstm_cluster_512x4, 32, 4)
LSTM_CLUSTER(lstm_cluster_128x8, 8, 8)
LSTM_CLUSTER(lstm_cluster_256x8, 16, 8)
LSTM_CLUSTER(lstm_cluster_384x8, 24, 8)
LSTM_CLUSTER(lstm_cluster_512x8, 32, 8)

// What the persistent kernel has in the workspace. The words of states are those of both steps and all partitions.
__device__ __forceinline__ lstm::Exchange exchange_of(const Workspace& in, int batch, int hidden, int layers, int layer,
                                                      long long words) {
    const long long copied = in.pitch == hidden ? 0 : (long long)layers * lstm::GATES * hidden * in.pitch;
    unsigned* const states = reinterpret_cast<unsigned*>(reinterpret_cast<scalar_t*>(in.carried) + copied);
    lstm::Exchange with;
    with.states = reinterpret_cast<uint4*>(states + layer * words);
    with.cells = reinterpret_cast<float*>(states + layers * words);
    return with;
}

// No state is there yet. grid = any, block = 256, no dynamic shared memory.
extern "C" __global__ void lstm_persistent_start(LSTM_POINTERS, int steps, int batch, int hidden, int layers, int words) {
    const Workspace in(workspace, steps, batch, hidden, layers);
    lstm::clear_states(exchange_of(in, batch, hidden, layers, 0, words).states, (long long)layers * words / 4);
}

// One launch for all steps of a layer, by blocks that run at once and keep the recurrent weights (lstm_persistent.cuh).
// UNITSxSEQUENCES: what a block makes at a time. Grid, block and shared memory are said there.
#define LSTM_PERSISTENT(NAME, PACKETS, TILES, KEPT, FROM_L2)                                                                   \
    extern "C" __global__ void __launch_bounds__(lstm::PERSISTENT_THREADS, 1)                                         \
        NAME(LSTM_POINTERS, int steps, int batch, int hidden, int layers, int words, int layer, int blocks,           \
             int in_shared) {                                                                                         \
        const Workspace in(workspace, steps, batch, hidden, layers);                                                  \
        lstm::Exchange with = exchange_of(in, batch, hidden, layers, layer, words);                                   \
        with.blocks = blocks;                                                                                         \
        with.in_shared = in_shared;                                                                                   \
        lstm::recur_persistent<PACKETS, TILES, KEPT, FROM_L2>(                                                                 \
            layer_of(x, w, w_above, r, bias, y, h, c, workspace, in, steps, batch, hidden, layers, layer), with);     \
    }
LSTM_PERSISTENT(lstm_persistent_8x8, 2, 1, 8, false)
LSTM_PERSISTENT(lstm_persistent_16x8, 4, 1, 8, false)
LSTM_PERSISTENT(lstm_persistent_16x16, 4, 2, 8, false)
LSTM_PERSISTENT(lstm_persistent_24x8, 6, 1, 4, false)
LSTM_PERSISTENT(lstm_persistent_32x8, 8, 1, 4, false)
LSTM_PERSISTENT(lstm_persistent_32x8_l2, 8, 1, 4, true)

// Copies the recurrent weights of all layers to rows of `pitch`, zeros behind `hidden`. grid = layers * 4 hidden,
// block = 128, no dynamic shared memory.
extern "C" __global__ void lstm_align(LSTM_POINTERS, int steps, int batch, int hidden, int layers) {
    const Workspace in(workspace, steps, batch, hidden, layers);
    scalar_t* const to = reinterpret_cast<scalar_t*>(in.carried) + (long long)blockIdx.x * in.pitch;
    for (int col = threadIdx.x; col < in.pitch; col += blockDim.x) {
        to[col] = col < hidden ? r[(long long)blockIdx.x * hidden + col] : from_float<scalar_t>(0.0f);
    }
}

// The gates of the inputs by wgmma, where rows of both operands are a multiple of 16 bytes. `parts`: as many matrices below
// each other in `from` are the left operand. grid = ceil(rows / 128) * ceil(hidden / 32), block = 288, dynamic shared
// memory = 3 stages of 32 KiB and their mbarriers.
extern "C" __global__ void __launch_bounds__(lstm::WGMMA_THREADS, 2)
    lstm_input_gemm_wgmma(const __grid_constant__ hopper::TensorMap from, const __grid_constant__ hopper::TensorMap weights,
                    float* workspace, int rows, int hidden, int width, int parts) {
    lstm::input_gemm_wgmma(from, weights, workspace, rows, hidden, width, parts);
}
#endif
