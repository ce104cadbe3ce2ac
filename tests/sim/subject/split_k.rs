//! A product whose blocks add their parts into one output, through a tensor map.

use super::*;

/// Extents of any size but n, a multiple of 4, and the length of a block's part of k.
pub fn split_k([m, n, k]: [usize; 3], slice: usize) -> Subject {
    let (a, b, c) = (small(m * k, 13), small(k * n, 14), small(m * n, 15));
    let sums = product(&a, &b, [m, n, k]).iter().zip(&c).map(|(sum, before)| sum + before).collect();
    let output = View {
        data: Some(bytes_of_f32(&c)),
        element_bytes: 4,
        rows: m as u64,
        columns: n as u64,
        box_rows: 32,
        box_columns: 32,
        swizzle: Swizzle::None,
    };
    Subject {
        name: "split_k".into(),
        ptx: fixture("split_k"),
        launch: Launch::new(
            "split_k",
            Dim::new(n.div_ceil(64) as u32, m.div_ceil(32) as u32, k.div_ceil(slice) as u32),
            128,
        ),
        arguments: vec![
            Argument::Map(output),
            Argument::Input(bytes_of_f32(&a)),
            Argument::Input(bytes_of_f32(&b)),
            scalar(m as i32),
            scalar(n as i32),
            scalar(k as i32),
            scalar(slice as i32),
        ],
        spare: Vec::new(),
        then: Vec::new(),
        expected: exactly(0, sums),
        is_async: true,
    }
}
