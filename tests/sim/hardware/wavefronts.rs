//! Accesses to shared memory whose lanes share addresses or banks in many ways: one launch each, whose wavefronts Nsight
//! Compute counts.

/// How the lanes of a warp place their elements.
type Place = fn(u32) -> u32;

const PLACES: [(&str, Place); 17] = [
    ("one", |_| 0),
    ("in_turn", |lane| lane),
    ("backwards", |lane| 31 - lane),
    ("pairs", |lane| lane / 2),
    ("two_apart", |lane| lane & !2),
    ("four_apart", |lane| lane & !4),
    ("eight_apart", |lane| lane & !8),
    ("half_warps_alike", |lane| lane % 16),
    ("quarters_alike", |lane| lane % 8),
    ("fours", |lane| lane / 4),
    ("eights", |lane| lane / 8),
    ("half_warps", |lane| lane / 16),
    ("every_second", |lane| lane * 2),
    ("pairs_far_apart", |lane| lane / 2 * 4),
    ("rows_of_eight", |lane| lane * 8),
    ("one_then_in_turn", |lane| if lane < 16 { 0 } else { lane }),
    ("pairs_then_in_turn", |lane| if lane < 16 { lane / 2 } else { lane }),
];

/// Opcode behind its name, registers, bytes.
const ACCESSES: [(&str, &str, &str, u32); 6] = [
    ("ld4", "ld.shared.b32", "%r4", 4),
    ("ld8", "ld.shared.v2.b32", "{%r4, %r5}", 8),
    ("ld16", "ld.shared.v4.b32", "{%r4, %r5, %r6, %r7}", 16),
    ("st4", "st.shared.b32", "%r4", 4),
    ("st8", "st.shared.v2.b32", "{%r4, %r5}", 8),
    ("st16", "st.shared.v4.b32", "{%r4, %r5, %r6, %r7}", 16),
];

/// A warp that makes one access: its name, its text, and the byte offset of each lane.
pub struct Access {
    pub name: String,
    pub entry: String,
    pub ptx: String,
    pub offsets: Vec<u32>,
}

pub fn all() -> Vec<Access> {
    let of = |(name, opcode, registers, bytes): &(&str, &str, &str, u32)| {
        let entry = format!("wavefronts_{name}");
        let address =
            if opcode.starts_with("ld") { format!("{registers}, [%r2]") } else { format!("[%r2], {registers}") };
        let zeros: String = (0..32).map(|at| format!("st.shared.b32 [%r3+{}], 0;\n", 128 * at)).collect();
        let ptx = format!(
            ".version 8.3\n.target sm_90a\n.address_size 64\n.visible .entry {entry}(.param .u64 p0, .param .u64 p1)\n{{\n\
             .reg .b32 %r<9>; .reg .b64 %d<5>; .shared .align 1024 .b8 sh[4096];\n\
             ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2;\n\
             ld.global.b32 %r1, [%d3]; mov.u32 %r2, sh; shl.b32 %r3, %r0, 2; add.s32 %r3, %r3, %r2; add.s32 %r2, %r2, %r1;\n{zeros}bar.warp.sync -1;\n\
             mov.u32 %r4, 1; mov.u32 %r5, 2; mov.u32 %r6, 3; mov.u32 %r7, 4;\n{opcode} {address};\nbar.warp.sync -1;\n\
             ld.shared.b32 %r8, [%r3]; add.s32 %r8, %r8, %r4; add.s32 %r8, %r8, %r5; add.s32 %r8, %r8, %r6; add.s32 %r8, %r8, %r7; st.global.b32 [%d4], %r8;\nret;\n}}\n"
        );
        let of_place = move |(place, at): &(&str, Place)| Access {
            name: format!("{name} {place}"),
            entry: entry.clone(),
            ptx: ptx.clone(),
            offsets: (0..32).map(|lane| at(lane) * bytes).collect(),
        };
        PLACES.iter().map(of_place).collect::<Vec<_>>()
    };
    ACCESSES.iter().flat_map(of).collect()
}
