//! The kernels of `fixtures/ptx`, which use what the catalogue does not.

use super::*;

/// All of them.
pub fn fixtures() -> Vec<Group> {
    let mut all: Vec<Group> = vec![
        vec![gemm_mma([64, 128, 160]), gemm_mma([128, 64, 32])].into(),
        vec![scale(2, 11), scale(1, 1), scale(3, 2)].into(),
        vec![sum_rows(3, 1536), sum_rows(1, 256)].into(),
        vec![row_max(24, 1000), row_max(3, 77), row_max(24, 5000)].into(),
        vec![ring(3)].into(),
        vec![split_k::split_k([70, 100, 130], 48), split_k::split_k([33, 36, 40], 20)].into(),
        vec![function_table::apply(333), function_table::apply(64)].into(),
        [[0, 1], [3, 2], [1, 3], [2, 0]].map(|pair| function_table::apply_pair(150, pair)).to_vec().into(),
    ];
    for entry in ["gemm_k_major", "gemm_n_major"] {
        all.push(vec![wgmma(entry, [128, 64, 384]), wgmma(entry, [64, 128, 64])].into());
    }
    for arch in ["sm_80", "sm_90a"] {
        let shapes = [([3, 784], [64, 128, 96]), ([2, 400], [128, 64, 32]), ([1, 1024], [64, 64, 224])];
        let mut kernels = vec![Vec::new(); 4];
        for (rows, extents) in shapes {
            kernels.iter_mut().zip(triton(arch, rows, extents)).for_each(|(group, subject)| group.push(subject));
        }
        all.extend(kernels.into_iter().map(Group::from));
    }
    all
}

/// The bf16 product by warps; extents are multiples of 64, 64 and 32.
pub fn gemm_mma([m, n, k]: [usize; 3]) -> Subject {
    let (a, b) = (small(m * k, 1), small(k * n, 2));
    Subject {
        name: "mma_cp_async".into(),
        ptx: fixture("mma_cp_async"),
        launch: Launch::new("gemm_mma", Dim::new(n as u32 / 64, m as u32 / 64, 1), 128),
        arguments: vec![
            Argument::Input(bf16_bytes(&a)),
            Argument::Input(bf16_bytes(&b)),
            Argument::Output(4 * m * n),
            scalar(n as i32),
            scalar(k as i32),
        ],
        spare: Vec::new(),
        then: Vec::new(),
        expected: exactly(2, product(&a, &b, [m, n, k])),
        is_async: true,
    }
}

/// The bf16 product by warp groups; extents are multiples of 64.
pub fn wgmma(entry: &str, [m, n, k]: [usize; 3]) -> Subject {
    let (a, b) = (small(m * k, 1), small(k * n, 2));
    let map = |values: &[f64], columns: usize| {
        Argument::Map(View {
            data: Some(bf16_bytes(values)),
            element_bytes: 2,
            rows: (values.len() / columns) as u64,
            columns: columns as u64,
            box_rows: 64,
            box_columns: 64,
            swizzle: Swizzle::Bytes128,
        })
    };
    let right = if entry == "gemm_k_major" { map(&transposed(&b, n), k) } else { map(&b, n) };
    Subject {
        name: entry.replace("gemm", "wgmma_tma"),
        ptx: fixture("wgmma_tma"),
        launch: Launch::new(entry, Dim::new(n as u32 / 64, m as u32 / 64, 1), 128),
        arguments: vec![map(&a, k), right, Argument::Output(4 * m * n), scalar(n as i32), scalar(k as i32)],
        spare: Vec::new(),
        then: Vec::new(),
        expected: exactly(2, product(&a, &b, [m, n, k])),
        is_async: true,
    }
}

fn scale(box_rows: usize, boxes: usize) -> Subject {
    let x = random(box_rows * boxes * 1024, 3);
    let map = |data| {
        Argument::Map(View {
            data,
            element_bytes: 4,
            rows: box_rows as u64 * 32,
            columns: boxes as u64 * 32,
            box_rows: 32,
            box_columns: 32,
            swizzle: Swizzle::None,
        })
    };
    Subject {
        name: "bulk_pipeline scale".into(),
        ptx: fixture("bulk_pipeline"),
        launch: Launch::new("scale", box_rows as u32, 128),
        arguments: vec![map(Some(bytes_of_f32(&x))), map(None), scalar(boxes as i32)],
        spare: Vec::new(),
        then: Vec::new(),
        expected: exactly(1, x.iter().map(|x| f64::from((2.0 * x + 1.0) as f32)).collect()),
        is_async: true,
    }
}

fn sum_rows(rows: usize, columns: usize) -> Subject {
    let x = small(rows * columns, 4);
    Subject {
        name: "bulk_pipeline sum_rows".into(),
        ptx: fixture("bulk_pipeline"),
        launch: Launch::new("sum_rows", rows as u32, 64),
        arguments: vec![Argument::Input(bytes_of_f32(&x)), Argument::Output(4 * rows), scalar(columns as i32)],
        spare: Vec::new(),
        then: Vec::new(),
        expected: exactly(1, x.chunks(columns).map(|row| row.iter().sum()).collect()),
        is_async: true,
    }
}

fn row_max(rows: usize, columns: usize) -> Subject {
    let mut x = random(rows * columns, 5);
    // The largest lies elsewhere in every row: no thread may be forgotten.
    (0..rows).for_each(|row| x[row * columns + (row * 397 + 4 * columns / 5) % columns] = 2.0 + row as f64);
    Subject {
        name: "cluster row_max".into(),
        ptx: fixture("cluster"),
        launch: Launch::new("row_max", 4 * rows as u32, 128).cluster(4),
        arguments: vec![Argument::Input(bytes_of_f32(&x)), Argument::Output(4 * rows), scalar(columns as i32)],
        spare: Vec::new(),
        then: Vec::new(),
        expected: exactly(
            1,
            x.chunks(columns).map(|row| f64::from(row.iter().copied().fold(f64::MIN, f64::max) as f32)).collect(),
        ),
        is_async: true,
    }
}

fn ring(groups: usize) -> Subject {
    let x = small(groups * 256, 6);
    let y = (0..x.len()).map(|at| (0..4).map(|block| x[at / 256 * 256 + block * 64 + at % 64]).sum()).collect();
    Subject {
        name: "cluster ring".into(),
        ptx: fixture("cluster"),
        launch: Launch::new("ring", 4 * groups as u32, 64).cluster(4),
        arguments: vec![Argument::Input(bytes_of_f32(&x)), Argument::Output(4 * x.len())],
        spare: Vec::new(),
        then: Vec::new(),
        expected: exactly(1, y),
        is_async: true,
    }
}

/// What Triton makes of four programs.
fn triton(arch: &str, [rows, columns]: [usize; 2], extents: [usize; 3]) -> Vec<Subject> {
    let subject = |kernel: &str, grid: Dim, shared: u32, mut arguments: Vec<Argument>, expected: Vec<Expected>| {
        // Two scratch pointers that Triton adds.
        arguments.extend([Argument::Scalar(vec![0; 8]), Argument::Scalar(vec![0; 8])]);
        Subject {
            name: format!("triton {kernel} {arch}"),
            ptx: fixture(&format!("triton/{kernel}.{arch}")),
            launch: Launch::new(kernel, grid, 128).dynamic_shared(shared),
            arguments,
            spare: Vec::new(),
            then: Vec::new(),
            expected,
            is_async: kernel == "matmul",
        }
    };
    let input = |values: &[f64]| Argument::Input(bytes_of_f32(values));
    let (x, y) = (random(rows * columns, 7), random(rows * columns, 8));
    let sums = x.iter().zip(&y).map(|(x, y)| f64::from((x + y) as f32)).collect();
    let n = rows * columns;
    let add = subject(
        "add",
        Dim::new(n.div_ceil(256) as u32, 1, 1),
        0,
        vec![input(&x), input(&y), Argument::Output(4 * n), scalar(n as i32)],
        exactly(2, sums),
    );
    let per_row = |f: fn(&[f64]) -> Vec<f64>| x.chunks(columns).flat_map(f).collect::<Vec<f64>>();
    let softmax = subject(
        "softmax",
        Dim::new(rows as u32, 1, 1),
        16,
        vec![input(&x), Argument::Output(4 * n), scalar(columns as i32)],
        nearly(
            1,
            per_row(|row| {
                let sum: f64 = row.iter().map(|x| x.exp()).sum();
                row.iter().map(|x| x.exp() / sum).collect()
            }),
        ),
    );
    let (weight, bias) = (random(columns, 9), random(columns, 10));
    let normal = per_row(|row| {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / row.len() as f64;
        row.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt()).collect()
    });
    let scaled = normal.iter().enumerate().map(|(at, x)| x * weight[at % columns] + bias[at % columns]).collect();
    let layernorm = subject(
        "layernorm",
        Dim::new(rows as u32, 1, 1),
        16,
        vec![
            input(&x),
            input(&weight),
            input(&bias),
            Argument::Output(4 * n),
            scalar(columns as i32),
            Argument::Scalar(1e-5f32.to_le_bytes().to_vec()),
        ],
        nearly(3, scaled),
    );
    let [m, n, k] = extents;
    let (a, b) = (small(m * k, 11), small(k * n, 12));
    let half =
        |values: &[f64]| Argument::Input(values.iter().flat_map(|value| f16::from_f64(*value).to_le_bytes()).collect());
    let matmul = subject(
        "matmul",
        Dim::new(m as u32 / 64, n as u32 / 64, 1),
        24_576,
        vec![half(&a), half(&b), Argument::Output(4 * m * n), scalar(m as i32), scalar(n as i32), scalar(k as i32)],
        exactly(2, product(&a, &b, extents)),
    );
    vec![add, softmax, layernorm, matmul]
}
