// A row that a cluster of blocks owns together, a contiguous slice each (compute capability 9.0 and up).
#pragma once
#include "cluster.cuh"
#include "hopper.cuh"
#include "packed_row.cuh"

#if __CUDA_ARCH__ >= 900
// A thread group like those of rows.cuh, of at most REDUCTIONS reductions, each once. A reduction sends the partial of every warp
// into the shared memory of every block by st.async, which counts it at an mbarrier there: no block waits for more than the bytes
// that it needs, and none for the stores of another. A block leaves when its last reduction is over: nothing is on its way to it
// then, and those that it sends to still wait.
template <int REDUCTIONS>
struct ClusterGroup : WarpsOfBlock {
    static constexpr bool EARLY_WEIGHTS = false;
    unsigned partials;   // shared address of REDUCTIONS arrays of a partial for every warp of the cluster
    unsigned mbarriers;  // and of as many mbarriers

    // Arrives at the barrier that the first reduction waits on: by then every block has started, and its mbarriers are there.
    // The loads in between hide the wait.
    __device__ __forceinline__ ClusterGroup() {
        __shared__ alignas(8) unsigned long long barrier[REDUCTIONS];
        __shared__ float partial[REDUCTIONS * MAX_CLUSTER * MAX_WARPS];
        mbarriers = shared_address(barrier);
        partials = shared_address(partial);
        if (threadIdx.x == 0) {
#pragma unroll
            for (int i = 0; i < REDUCTIONS; ++i) {
                hopper::mbarrier_init(mbarriers + 8 * i, 1);
            }
            hopper::mbarrier_init_fence();
        }
        cluster_arrive_relaxed();
    }

    static __device__ __forceinline__ long long row() {
        unsigned int cluster;
        asm("mov.u32 %0, %%clusterid.x;" : "=r"(cluster));
        return cluster;
    }
    static __device__ __forceinline__ long long rows() {
        unsigned int count;
        asm("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
        return count;
    }
    static __device__ __forceinline__ int block() {
        int rank;
        asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        return rank;
    }
    static __device__ __forceinline__ int blocks() {
        int count;
        asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
        return count;
    }
    static __device__ __forceinline__ int warps() { return int(blockDim.x) / WARP; }

    // Whole accesses, spread evenly; the last slices may be shorter or empty. The blocks are a power of two.
    template <int WIDTH>
    __device__ __forceinline__ int slice(int cols) const {
        const int log2_blocks = 31 - __clz(blocks());
        return ((cols / WIDTH + blocks() - 1) >> log2_blocks) * WIDTH;
    }
    template <int WIDTH>
    __device__ __forceinline__ int first_column(int cols) const {
        return block() * slice<WIDTH>(cols);
    }
    template <int WIDTH>
    __device__ __forceinline__ int columns(int cols) const {
        return min(slice<WIDTH>(cols), cols - first_column<WIDTH>(cols));
    }

    template <typename Reduction, int SLOT>
    __device__ __forceinline__ float reduce(float value) const {
        return combine<Reduction, SLOT>(warp_reduce<Reduction>(value));
    }
    template <typename Reduction, int SLOT>
    __device__ __forceinline__ float combine(float of_warp) const {
        static_assert(SLOT < REDUCTIONS, "a reduction has partials and an mbarrier of its own");
        const int lane = int(threadIdx.x) % WARP;
        const int count = blocks() * warps();
        const unsigned mine = partials + SLOT * MAX_CLUSTER * MAX_WARPS * unsigned(sizeof(float));
        const unsigned barrier = mbarriers + 8 * SLOT;
        if (SLOT == 0) {
            cluster_wait();
        }
        if (threadIdx.x == 0) {
            hopper::mbarrier_expect_tx(barrier, count * int(sizeof(float)));
        }
        if (lane < blocks()) {
            const unsigned at = mine + unsigned(block() * warps() + int(threadIdx.x) / WARP) * unsigned(sizeof(float));
            st_async_1(mapa_shared(at, lane), mapa_shared(barrier, lane), of_warp);
        }
        hopper::mbarrier_wait(barrier, 0);
        float total = Reduction::identity();
#pragma unroll 1
        for (int i = lane; i < count; i += WARP) {
            float partial;
            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(partial) : "r"(mine + 4 * i) : "memory");
            total = Reduction::combine(total, partial);
        }
        return warp_reduce<Reduction>(total);
    }
};

template <int REDUCTIONS>
__device__ __forceinline__ int edge_lane(const ClusterGroup<REDUCTIONS>& group) {
    return group.block() == 0 ? int(threadIdx.x) : MAX_WARPS * WARP;
}
#endif
