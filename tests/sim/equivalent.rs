//! Survivors that are as right as the kernel for reasons that no text around the change shows: how the subject starts,
//! the slip, a part of the line before the change, and why.

const SPLIT: &str = "Splits an exponent into two parts, the second of which makes up for the first.";
const LOW_PART: &str = "The low part of a constant, or the last term of a series: far below the tolerance.";
const SLOWER_WAY: &str = "Sends every row the way of rows that do not fill their packs, which is right for all.";
const PAST_THE_LAST: &str = "What is in flight then are slices past the last, into stages that nobody reads again; \
    of shared memory only the totals behind them are touched.";
const SAME_LANES: &str = "All lanes hold the reduced value: another one stores the same bits to the same place.";
const NEVER_FEW: &str = "Read only where a block has fewer packs than any plan gives it.";
const UNDEFINED: &str = "Differs for an id outside the table only, which the operator does not define.";
const NAN_MAXIMUM: &str = "The maximum of NaN and a number is the number.";
const ABSENT: &str =
    "What one factor has past the end of k meets zeros of the other; past its rows or columns none is stored.";
const LOADS_FIRST: &str =
    "Keeps the compiler from moving loads to their uses: the lanes pass each other nothing there.";
const TAIL: &str =
    "From 10 to 14 the polynomial of the tail falls from 2^-76 to 2^-172: nothing of it is left beside x.";
const ALWAYS_ZERO: &str = "The bit that is kept in addition is always 0.";
const MORE_PACKS: &str = "A row of this entry has more packs than its block has threads.";
const EACH_TESTED: &str = "A lane without packs goes to the loop, every load of which has a test of its own.";
const TWO_WARPS: &str = "A block of this entry has two warps at most: both parts are filled in with 0.";
const NINE_WARPS: &str = "A block of this entry has nine warps at least: there is no part to fill in.";
const PAST_THE_END: &str =
    "Stands in for the id of a row past the end, of which nothing is stored; every table has a row 0.";
const LESS_THAN_A_PACK: &str =
    "The loop runs over what is left behind the last pack, less than four, which the part before it has taken.";
const HALVES: &str = "What a step leaves undone falls to its halves behind it and to the packs that some lanes have.";
const FIRST_PHASE: &str = "The register holds 0: each of these mbarriers has one phase.";
const PREFETCHED: &str = "Part of which row of a later block is asked for ahead of time: no value depends on that.";
const WHOLE_COLUMNS: &str =
    "What is compared is a number of whole packs in columns, or in bytes: it never equals the bound.";
const THREAD_32: &str =
    "Only thread 32 is decided otherwise, the first lane of its warp, and a block has more than one warp.";
const LEAST: &str = "Stands for an absent element: the square of the least number above 0 is nothing beside a row's.";
const MULTIPLE: &str = "Only whether a number is a multiple of 8 counts there: its negative is one where it is.";

const EQUIVALENT: &[(&str, &str, &str, &str)] = &[
    ("layernorm cuda", "parity fixed", "mbarrier.try_wait", FIRST_PHASE),
    ("layernorm_gelu cuda", "parity fixed", "mbarrier.try_wait", FIRST_PHASE),
    ("rmsnorm cuda", "parity fixed", "mbarrier.try_wait", FIRST_PHASE),
    ("add_rmsnorm cuda", "parity fixed", "mbarrier.try_wait", FIRST_PHASE),
    ("softmax cuda", "parity fixed", "mbarrier.try_wait", FIRST_PHASE),
    ("log_softmax cuda", "parity fixed", "mbarrier.try_wait", FIRST_PHASE),
    ("rmsnorm cuda rmsnorm_cluster", "guard dropped", "bra $L__BB", PREFETCHED),
    ("rmsnorm cuda rmsnorm_cluster", "operands swapped", "div.u32", PREFETCHED),
    ("layernorm cuda layernorm_cluster", "other operation", "min.s32", PREFETCHED),
    ("softmax cuda softmax_cluster", "operands swapped", "sub.s32", PREFETCHED),
    ("layernorm_gelu cuda layernorm_gelu_mma_cluster", "operands swapped", "sub.s32", PREFETCHED),
    ("add_rmsnorm cuda add_rmsnorm_cluster", "comparison off by one", "setp.ge.u64", PREFETCHED),
    ("layernorm cuda layernorm_mma_cluster", "comparison off by one", ", 1;", WHOLE_COLUMNS),
    ("layernorm_gelu cuda layernorm_gelu_cluster", "comparison off by one", ", 1;", WHOLE_COLUMNS),
    ("layernorm_gelu cuda layernorm_gelu_mma_cluster", "comparison off by one", ", 1;", WHOLE_COLUMNS),
    ("rmsnorm cuda rmsnorm_cluster", "comparison off by one", ", 769;", WHOLE_COLUMNS),
    ("add_rmsnorm cuda add_rmsnorm_cluster", "comparison off by one", ", 1;", WHOLE_COLUMNS),
    ("softmax cuda softmax_cluster", "comparison off by one", ", 769;", WHOLE_COLUMNS),
    ("log_softmax cuda log_softmax_cluster", "comparison off by one", ", 385;", WHOLE_COLUMNS),
    ("log_softmax cuda log_softmax_cluster", "comparison off by one", ", 513;", WHOLE_COLUMNS),
    ("log_softmax cuda log_softmax_block_unaligned", "comparison off by one", ", 897;", WHOLE_COLUMNS),
    ("log_softmax cuda log_softmax_small_block", "comparison off by one", ", 1;", WHOLE_COLUMNS),
    ("add_rmsnorm cuda add_rmsnorm_cluster", "constant off by one", ", 385;", WHOLE_COLUMNS),
    ("softmax cuda softmax_few_rows", "comparison off by one", ", 63;", THREAD_32),
    ("softmax cuda softmax_few_rows", "constant off by one", ", 63;", THREAD_32),
    ("log_softmax cuda log_softmax_few_rows", "constant off by one", ", 63;", THREAD_32),
    ("add_rmsnorm cuda add_rmsnorm_few_rows_unaligned", "constant off by one", "mov.u16", LEAST),
    ("layernorm cuda layernorm_few_rows_unaligned", "sign forgotten", "neg.s32", MULTIPLE),
    ("log_softmax cuda log_softmax_few_rows_unaligned", "constant off by one", "setp.ne.s32", SAME_LANES),
    ("bmm cuda", "wait dropped", "cp.async.wait_group 0;", PAST_THE_LAST),
    ("bmm cuda", "waits for too little", "cp.async.wait_group 0;", PAST_THE_LAST),
    ("linear cuda", "wait dropped", "cp.async.wait_group 0;", PAST_THE_LAST),
    ("linear cuda", "waits for too little", "cp.async.wait_group 0;", PAST_THE_LAST),
    (
        "bulk_pipeline sum_rows",
        "comparison off by one",
        ", 255;",
        "The length of a row is a multiple of 256, never 255.",
    ),
    ("cluster row_max", "comparison off by one", "setp.ne.s32", SAME_LANES),
    ("cluster row_max", "guard negated", "bra", SAME_LANES),
    ("cluster row_max", "constant wrong", "0fFF800000", NAN_MAXIMUM),
    ("cluster row_max", "wrong block of the cluster", "mapa", "The register held 0, the block that gathers."),
    ("cluster ring", "constant off by one", "setp.ne.s32", "Thread 1 instead of thread 0 makes the objects."),
    (
        "cluster ring",
        "fence dropped",
        "mbarrier_init",
        "The cluster barrier behind it orders ordinary arrivals as well.",
    ),
    (
        "triton matmul sm_80",
        "barrier dropped",
        "bar.sync",
        "No copy was issued since the wait and barrier before the loop.",
    ),
    ("triton matmul sm_80", "wait dropped", "wait_group", "No copy was issued since the wait before the loop."),
    (
        "triton matmul sm_80",
        "waits for too little",
        "wait_group \t0",
        "The last group is empty: it lies past the last step.",
    ),
    (
        "triton matmul sm_80",
        "constant wrong",
        "0f00000000",
        "The loop, which always runs, starts from other registers.",
    ),
    ("triton", "constant off by one", ", 508;", ALWAYS_ZERO),
    ("triton", "constant off by one", ", 2048;", ALWAYS_ZERO),
    ("gelu triton", "constant off by one", ", 508;", ALWAYS_ZERO),
    ("silu triton", "constant off by one", ", 508;", ALWAYS_ZERO),
    ("layernorm cuda", "operands swapped", "sub.f32", "Only the square of the difference of two means is used."),
    ("", "constant wrong", "0f32A57060", LOW_PART),
    ("embedding lesson2_vectorised", "other operation", ", 3;", SLOWER_WAY),
    ("rmsnorm cuda", "other operation", ", 3;", SLOWER_WAY),
    ("embedding lesson1_naive", "guard dropped", "bra", UNDEFINED),
    ("gelu cuda", "constant wrong", "0f41200000", TAIL),
    ("layernorm_gelu cuda", "constant wrong", "0f41200000", TAIL),
    ("", "constant wrong", "0f3BBB989D", SPLIT),
    ("gelu_tanh", "addend forgotten", "fma.rn.f32", SPLIT),
    ("softmax", "constant wrong", "0fFF800000", NAN_MAXIMUM),
    ("split_k", "constant wrong", "%f165, 0f00000000", ABSENT),
    ("split_k", "comparison off by one", "%p50, %r75, %r86", ABSENT),
    (
        "split_k",
        "other operation",
        "%r104, %r103, -32",
        "Goes into the rounds that are left over from four at a time: there are none.",
    ),
    ("function_table", "constant off by one", ", 24;", ALWAYS_ZERO),
    (
        "linear lesson1_naive",
        "comparison off by one",
        "setp.ge.s32",
        "The column of an output is what a division by n leaves: it is never n.",
    ),
    ("embedding lesson2_vectorised", "constant off by one", ", -1;", PAST_THE_END),
    ("gemv lesson2_warp_per_row gemv_warp_per_row", "barrier dropped", "bar.warp.sync", LOADS_FIRST),
    (
        "gemv lesson2_warp_per_row gemv_warp_per_row",
        "barrier dropped",
        "bar.sync",
        "One warp has a row there, whose first lane reads what it wrote itself.",
    ),
    ("gemv cuda gemv_row_tile", "barrier dropped", "bar.warp.sync", LOADS_FIRST),
    ("gemv cuda gemv_lines", "barrier dropped", "bar.warp.sync", LOADS_FIRST),
    ("layernorm lesson3_registers layernorm_registers_block", "constant wrong", "0f00000000", NEVER_FEW),
    (
        "row_sum cuda row_sum_pack_loop_block",
        "branch dropped",
        "$L_39",
        "Sends all warps through the sum of up to 32 parts, where those that no warp wrote are 0.",
    ),
    (
        "row_sum cuda row_sum_pack_loop_warp",
        "comparison off by one",
        "setp.ge.s32",
        "The loop runs over whole groups of packs only: no lane stands at the end.",
    ),
    ("gemm lesson", "comparison off by one", ", -62;", "Whether a positive k makes a slice at all."),
    ("embedding cuda embedding_vectorised", "other operation", "%r41, %r39, 7", SLOWER_WAY),
    ("embedding cuda embedding_vectorised", "branch dropped", "@%p6 bra $L_21", SLOWER_WAY),
    (
        "embedding cuda embedding_vectorised",
        "other operation",
        "%r68, %r17, %r67",
        "A shorter step: threads copy what others copy too, the same bytes to the same place.",
    ),
    (
        "lstm cuda lstm_persistent_start",
        "comparison off by one",
        "setp.eq.s64 %p3",
        "Small numbers take the long division, which is right for them too; there are no large ones.",
    ),
    (
        "lstm cuda lstm_persistent_start",
        "guard dropped",
        "@%p3 bra $L_3",
        "Always the short division: the words of two layers are fewer than 2^32.",
    ),
    (
        "lstm cuda lstm_persistent_start",
        "constant off by one",
        "mov.u32 %r13, 0",
        "Every word without the tag says that its state is not there yet.",
    ),
    (
        "lstm lesson3_persistent lstm_align",
        "constant wrong",
        "0f00000000",
        "The states behind the last unit are zeros, so that the weights there count nothing.",
    ),
    ("embedding", "comparison off by one", "setp.lt.s32", UNDEFINED),
    ("embedding", "comparison off by one", "setp.gt.s32", UNDEFINED),
    ("embedding", "constant wrong", "0f7FFFFFFF", UNDEFINED),
    ("", "constant wrong", "0fB1F20F85", LOW_PART),
    ("rmsnorm cuda rmsnorm_large_block", "constant wrong", "%f357, 0f00000000", NEVER_FEW),
    ("rmsnorm cuda rmsnorm_small_block", "constant wrong", "%f201, 0f00000000", NEVER_FEW),
    ("row_mean cuda row_mean_pack_loop_block", "constant wrong", "%f199, 0f00000000", NEVER_FEW),
    ("row_sum cuda row_sum_one_trip_block", "constant wrong", "%f115, 0f00000000", NEVER_FEW),
    ("row_sum cuda row_sum_one_trip_warp", "constant wrong", "%f150, 0f00000000", NEVER_FEW),
    ("row_sum cuda row_sum_one_trip_warp", "comparison off by one", "%p1, %r3, %r2", MORE_PACKS),
    ("row_mean cuda row_mean_one_trip_block", "comparison off by one", "%p1, %r3, %r2", MORE_PACKS),
    (
        "row_mean cuda row_mean_pack_loop_block",
        "operands swapped",
        "div.u32 %r103, %r6, %r101",
        "Decides whether a round stands before the loop, every load of which has a test of its own.",
    ),
    ("row_mean cuda row_mean_pack_loop_warp", "branch dropped", "@%p2 bra $L_28", EACH_TESTED),
    ("row_mean cuda row_mean_pack_loop_warp", "comparison off by one", "%p2, %r252, %r2", EACH_TESTED),
    (
        "row_sum lesson2_vectorised row_sum_pack_loop_warp",
        "other operation",
        "%r102, %r2, %r101",
        "Decides whether a round stands before the loop, every load of which has a test of its own.",
    ),
    (
        "row_sum lesson2_vectorised row_sum_pack_loop_warp",
        "comparison off by one",
        "%p9, %r22, %r2",
        "Only lanes with a second round come to the loop: all packs of their first are there.",
    ),
    (
        "row_sum lesson2_vectorised row_sum_pack_loop_warp",
        "constant off by one",
        "%r252, %r76, 32",
        "The loop takes two rounds at a time, which is all that 1024 columns have.",
    ),
    (
        "layernorm lesson3_registers layernorm_registers_warp",
        "constant wrong",
        "%f839, 0f00000000",
        "A row has more than 256 columns, of which every lane has that element; a warp past the last row stores nothing.",
    ),
    (
        "layernorm cuda layernorm_elements_four_warps",
        "constant off by one",
        "%rd18, %rd3, -1",
        "A block has one row: none lies past the last.",
    ),
    (
        "layernorm_gelu cuda layernorm_gelu_elements_four_warps",
        "constant off by one",
        "%rd73, %r103, 16",
        "A block has one row, whose number in the block is 0.",
    ),
    ("layernorm cuda layernorm_small_block", "address off", "3SumLi0EEffE8partials+12]", TWO_WARPS),
    ("layernorm_gelu cuda layernorm_gelu_small_block", "address off", "3SumLi0EEffE8partials+12]", TWO_WARPS),
    (
        "layernorm cuda layernorm_warp_per_row_unaligned",
        "sign forgotten",
        "neg.s32 %r473, %r474",
        "Only whether a number is a multiple of 8 counts there: its negative is one where it is.",
    ),
    ("layernorm_gelu cuda layernorm_gelu_full_block", "guard dropped", "@%p25 bra $L_23", NINE_WARPS),
    ("layernorm_gelu cuda layernorm_gelu_full_block", "guard dropped", "@%p19 bra $L_15", NINE_WARPS),
    ("gelu cuda", "guard dropped", "@%p7 bra $L_10", LESS_THAN_A_PACK),
    ("gelu_tanh cuda", "comparison off by one", "%p6, %rd35, 3", LESS_THAN_A_PACK),
    ("gelu_tanh cuda", "constant off by one", "%p6, %rd35, 3", LESS_THAN_A_PACK),
    (
        "conv2d lesson1_naive",
        "constant wrong",
        "%f62, 0f00000000",
        "Read only where an output has no product: there is a channel, and a filter has a tap.",
    ),
    ("gemv lesson2_warp_per_row gemv_warp_per_row", "comparison off by one", "%p5, %r23, %r3", HALVES),
    ("gemv lesson3_block_per_row gemv_row_tile", "comparison off by one", "%p20, %r227, %r3", HALVES),
    ("gemv cuda gemv_half_block_per_row", "comparison off by one", "%p3, %r8, %r4", HALVES),
    ("gemv cuda gemv_row_tile", "constant off by one", "mov.u32 %r410, 0", ABSENT),
    (
        "gemv cuda gemv_row_tile",
        "comparison off by one",
        "%p22, %r365, %r2",
        "One more round, of which nothing lies inside: each load has a test of its own.",
    ),
];

/// The argument for a survivor, where there is one.
pub fn argument(subject: &str, slip: &str, before: &str) -> Option<&'static str> {
    let is_of = |(start, of, part, _): &&(&str, &str, &str, &str)| {
        subject.starts_with(start) && slip == *of && before.contains(part)
    };
    EQUIVALENT.iter().find(is_of).map(|known| known.3)
}
