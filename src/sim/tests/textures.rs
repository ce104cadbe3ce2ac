//! Textures and surfaces: values by hand from the rules of addressing and filtering, and what is found wrong.

use crate::sim::machine::memory::Memory;
use crate::sim::report::Check;
use crate::sim::tests::{kernel, read_words, run, words};
use crate::sim::{AddressMode, ChannelKind, Channels, Filter, Launch, Module, Texture};
use rstest::rstest;

const FLOATS: Channels = Channels { count: 1, bits: 32, kind: ChannelKind::Float };
const BYTES: Channels = Channels { count: 1, bits: 8, kind: ChannelKind::Unsigned };

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// One read by one thread, of the coordinates' bits; the four results.
fn read(opcode: &str, memory: &mut Memory, texture: Texture, coordinates: &[u32]) -> Vec<u32> {
    let list: Vec<String> = coordinates.iter().map(|bits| format!("{bits}")).collect();
    let module = kernel(
        2,
        &format!(
            "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; {opcode} {{%r0, %r1, %r2, %r3}}, [%rd1, {{{}}}]; st.global.v4.u32 [%rd0], {{%r0, %r1, %r2, %r3}};",
            list.join(", ")
        ),
    );
    let out = memory.alloc(16, None).unwrap();
    let handle = memory.texture(texture).unwrap();
    let report = run(&module, &Launch::new("k", 1, 1).arg(out).arg(handle), memory);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    read_words(memory, out, 4)
}

/// The first result as a number.
fn sample(memory: &mut Memory, texture: Texture, coordinates: &[f32]) -> f32 {
    let opcode = format!("tex.{}d.v4.f32.f32", coordinates.len());
    let mut padded = bits(coordinates);
    padded.resize(if coordinates.len() == 3 { 4 } else { coordinates.len() }, 0);
    f32::from_bits(read(&opcode, memory, texture, &padded)[0])
}

#[test]
fn linear_memory_is_read_by_integers() {
    let mut memory = Memory::new();
    let data = words(&mut memory, &bits(&[10.0, 20.0, 30.0]));
    let texture = Texture::linear(data, FLOATS, 3);
    for (at, expected) in [(0i32, 10.0), (2, 30.0), (3, 0.0), (-1, 0.0)] {
        let found = read("tex.1d.v4.f32.s32", &mut memory, texture.clone(), &[at as u32]);
        let alpha: f32 = if expected == 0.0 { 0.0 } else { 1.0 };
        assert_eq!(found, bits(&[expected, 0.0, 0.0, alpha]), "texel {at}");
    }
}

#[test]
fn integers_keep_their_sign_and_their_channels() {
    let mut memory = Memory::new();
    let data = words(&mut memory, &[0xFFFE_0001, 0x0004_0003]);
    let signed = Channels { count: 2, bits: 16, kind: ChannelKind::Signed };
    let texture = Texture::array(data, signed, [2, 1, 1]);
    assert_eq!(read("tex.1d.v4.s32.s32", &mut memory, texture.clone(), &[0]), [1, -2i32 as u32, 0, 1]);
    assert_eq!(read("tex.1d.v4.s32.f32", &mut memory, texture, &bits(&[1.5])), [3, 4, 0, 1]);
}

#[rstest]
#[case(&[0.5], 0.0)]
#[case(&[1.0], 50.0)]
#[case(&[2.25], 175.0)]
#[case(&[-5.0], 0.0)]
#[case(&[9.0], 300.0)]
fn neighbours_are_weighted(#[case] at: &[f32], #[case] expected: f32) {
    let mut memory = Memory::new();
    let data = words(&mut memory, &bits(&[0.0, 100.0, 200.0, 300.0]));
    let texture = Texture { filter: Filter::Linear, ..Texture::array(data, FLOATS, [4, 1, 1]) };
    assert_eq!(sample(&mut memory, texture, at), expected);
}

#[test]
fn two_and_three_dimensions_and_layers() {
    let mut memory = Memory::new();
    // 2 x 2 x 2, rows of 16 bytes: texel (x, y, z) is x + 10 y + 100 z.
    let row = |y: u32, z: u32| [0.0 + (10 * y + 100 * z) as f32, 1.0 + (10 * y + 100 * z) as f32, -9.0, -9.0];
    let all: Vec<f32> = [row(0, 0), row(1, 0), row(0, 1), row(1, 1)].concat();
    let data = words(&mut memory, &bits(&all));
    let flat = Texture { row_bytes: 16, ..Texture::array(data, FLOATS, [2, 2, 1]) };
    let solid = Texture { extents: [2, 2, 2], ..flat.clone() };
    assert_eq!(sample(&mut memory, flat.clone(), &[1.2, 1.9]), 11.0);
    assert_eq!(sample(&mut memory, solid.clone(), &[0.1, 1.5, 1.5]), 110.0);
    let smooth = |texture: &Texture| Texture { filter: Filter::Linear, ..texture.clone() };
    assert_eq!(sample(&mut memory, smooth(&flat), &[1.0, 1.0]), 5.5);
    assert_eq!(sample(&mut memory, smooth(&solid), &[1.0, 1.25, 1.0]), 0.5 + 7.5 + 50.0);
    // Layer, x, y; layers outside are the nearest.
    let layered = |memory: &mut Memory, layer: u32| {
        let place = [&[layer][..], &bits(&[1.5, 0.5]), &[0]].concat();
        f32::from_bits(read("tex.a2d.v4.f32.f32", memory, solid.clone(), &place)[0])
    };
    assert_eq!([0, 1, 7].map(|layer| layered(&mut memory, layer)), [1.0, 101.0, 101.0]);
}

#[test]
fn bytes_are_read_as_parts_of_one() {
    let mut memory = Memory::new();
    let data = words(&mut memory, &[0x00FF_00FF]);
    let texture = Texture {
        row_bytes: 2,
        normalized_reads: true,
        normalized_coordinates: true,
        address_modes: [AddressMode::Wrap; 3],
        filter: Filter::Linear,
        ..Texture::array(data, BYTES, [2, 2, 1])
    };
    // Columns of 1 and 0: halfway between the second column and the first one again.
    assert_eq!(sample(&mut memory, texture.clone(), &[0.25, 0.3]), 1.0);
    assert_eq!(sample(&mut memory, texture.clone(), &[1.0, 0.9]), 0.5);
    let signed = Channels { kind: ChannelKind::Signed, ..BYTES };
    let texture = Texture { channels: signed, filter: Filter::Point, ..texture };
    assert_eq!(sample(&mut memory, texture, &[0.1, 0.1]), -1.0f32 / 127.0);
}

#[test]
fn four_neighbours_come_counter_clockwise() {
    let mut memory = Memory::new();
    let data = words(&mut memory, &bits(&[1.0, 2.0, 3.0, 4.0]));
    let texture = Texture::array(data, FLOATS, [2, 2, 1]);
    let found = read("tld4.r.2d.v4.f32.f32", &mut memory, texture.clone(), &bits(&[1.0, 1.0]));
    assert_eq!(found, bits(&[3.0, 4.0, 2.0, 1.0]));
    let found = read("tld4.a.2d.v4.f32.f32", &mut memory, texture, &bits(&[1.0, 1.0]));
    assert_eq!(found, bits(&[1.0; 4]), "a number that texels lack");
}

/// A kernel with a texture and a surface by name.
fn named() -> Module {
    Module::parse(
        ".version 8.0\n.target sm_80\n.address_size 64\n.global .texref image;\n.global .surfref canvas;\n\
         .visible .entry k(.param .u64 out) {\n.reg .b64 %rd<4>; .reg .b32 %r<8>;\nld.param.u64 %rd1, [out];\nmov.u32 %r0, %tid.x;\n\
         tex.1d.v4.f32.s32 {%r1, %r2, %r3, %r4}, [image, {%r0}];\nshl.b32 %r5, %r0, 2;\nsust.b.1d.b32.trap [canvas, {%r5}], %r1;\n\
         suld.b.1d.b32.trap %r6, [canvas, {%r5}];\ntxq.width.b32 %r7, [image];\nadd.u32 %r6, %r6, %r7;\nmul.wide.u32 %rd2, %r0, 4;\nadd.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r6;\nret;\n}",
    )
    .unwrap()
}

#[test]
fn names_are_bound_by_a_launch() {
    let module = named();
    let mut memory = Memory::new();
    let data = words(&mut memory, &[5, 6, 7, 8]);
    let (canvas, out) = (words(&mut memory, &[0; 4]), memory.alloc(16, None).unwrap());
    let image = memory.texture(Texture::linear(data, FLOATS, 4)).unwrap();
    let surface = memory.texture(Texture::linear(canvas, FLOATS, 4)).unwrap();
    let call = Launch::new("k", 1, 4).arg(out).texture("image", image).texture("canvas", surface);
    let report = run(&module, &call, &mut memory);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    assert_eq!(read_words(&memory, canvas, 4), [5, 6, 7, 8]);
    assert_eq!(read_words(&memory, out, 4), [9, 10, 11, 12]);
    let wrong = Launch::new("k", 1, 4).arg(out).texture("picture", image);
    let error = crate::sim::launch(&module, &wrong, &mut memory, &Default::default()).unwrap_err().to_string();
    assert!(error.contains("no texture or surface `picture`"), "{error}");
}

#[test]
fn what_is_bound_to_nothing_is_found() {
    let mut memory = Memory::new();
    let out = memory.alloc(16, None).unwrap();
    let report = run(&named(), &Launch::new("k", 1, 4).arg(out), &mut memory);
    assert_eq!(report.findings[0].check, Check::Trap);
    assert!(report.findings[0].message.contains("no texture or surface is bound"), "{}", report.findings[0]);
    let module = kernel(1, "ld.param.u64 %rd1, [p0]; tex.1d.v4.f32.s32 {%r0, %r1, %r2, %r3}, [%rd1, {0}];");
    let report = run(&module, &Launch::new("k", 1, 1).arg(0x1234u64), &mut memory);
    assert!(report.findings[0].message.contains("0x1234 is no handle"), "{}", report.findings[0]);
}

/// One read in a kernel by one thread; the first finding.
fn found_in(body: &str, texture: impl FnOnce(&mut Memory) -> Texture) -> (Check, String) {
    let mut memory = Memory::new();
    let texture = texture(&mut memory);
    let data = texture.data;
    let handle = memory.texture(texture).unwrap();
    let module = kernel(2, &format!("ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; mov.u32 %r9, %tid.x; {body}"));
    let report = run(&module, &Launch::new("k", 1, 64).arg(handle).arg(data), &mut memory);
    let first = report.findings.first().expect("nothing was found");
    (first.check, first.message.clone())
}

#[rstest]
#[case::floats_as_integers("tex.1d.v4.u32.s32 {%r0, %r1, %r2, %r3}, [%rd1, {0}];", Check::Trap, "no floats")]
#[case::beyond_the_end("suld.b.1d.b32.trap %r0, [%rd1, {256}];", Check::Trap, "at byte 256, row 0")]
#[case::between_texels("suld.b.1d.v2.b32.zero {%r0, %r1}, [%rd1, {4}];", Check::Trap, "no multiple of 8")]
#[case::written_meanwhile(
    "mad.wide.u32 %rd3, %r9, 4, %rd2; st.global.u32 [%rd3], 7; xor.b32 %r8, %r9, 32; tex.1d.v4.f32.s32 {%r0, %r1, %r2, %r3}, [%rd1, {%r8}];",
    Check::RaceGlobal,
    "no barrier between"
)]
fn defects_of_reads(#[case] body: &str, #[case] check: Check, #[case] part: &str) {
    let (found, message) = found_in(body, |memory| {
        let data = words(memory, &[0; 64]);
        Texture::linear(data, FLOATS, 64)
    });
    assert!(found == check && message.contains(part), "{found}: {message}");
}

#[test]
fn texels_that_nothing_has_written_are_found() {
    let (check, _) = found_in("tex.1d.v4.f32.s32 {%r0, %r1, %r2, %r3}, [%rd1, {%r9}];", |memory| {
        Texture::linear(memory.alloc(256, None).unwrap(), FLOATS, 64)
    });
    assert_eq!(check, Check::UninitialisedGlobal);
}

#[test]
fn surfaces_clamp_or_leave_out_what_lies_outside() {
    let mut memory = Memory::new();
    // Two rows of two bytes and two of padding.
    let data = words(&mut memory, &[0xAAAA_0201, 0xAAAA_0403]);
    let texture = Texture { row_bytes: 4, ..Texture::array(data, BYTES, [2, 2, 1]) };
    let handle = memory.texture(texture).unwrap();
    let module = kernel(
        2,
        "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];\n\
         suld.b.2d.b8.clamp %rs0, [%rd1, {7, 1}]; suld.b.2d.b8.zero %rs1, [%rd1, {7, 1}]; suld.b.2d.b8.clamp %rs2, [%rd1, {-1, -1}]; suld.b.2d.b16.trap %rs3, [%rd1, {0, 1}];\n\
         sust.b.2d.b8.zero [%rd1, {2, 0}], %rs0; sust.b.2d.b8.clamp [%rd1, {2, 0}], %rs0;\n\
         cvt.u32.u16 %r0, %rs0; cvt.u32.u16 %r1, %rs1; cvt.u32.u16 %r2, %rs2; cvt.u32.u16 %r3, %rs3; st.global.v4.u32 [%rd0], {%r0, %r1, %r2, %r3};\n\
         suq.height.b32 %r0, [%rd1]; suq.channel_order.b32 %r1, [%rd1]; txq.filter_mode.b32 %r2, [%rd1]; txq.addr_mode_1.b32 %r3, [%rd1]; st.global.v4.u32 [%rd0+16], {%r0, %r1, %r2, %r3};",
    );
    let out = memory.alloc(32, None).unwrap();
    let report = run(&module, &Launch::new("k", 1, 1).arg(out).arg(handle), &mut memory);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    assert_eq!(read_words(&memory, out, 8), [4, 0, 1, 0x0403, 2, 0x10B0, 0, 2]);
    assert_eq!(read_words(&memory, data, 2), [0xAAAA_0401, 0xAAAA_0403]);
}
