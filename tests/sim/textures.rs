//! Textures as the command and its server bind them.

use crate::command::subcommand;
use serde_json::{Value, json};

/// Each thread copies a texel of `image` and adds one of the object that it is given.
const COPY: &str = ".version 8.0\n.target sm_80\n.address_size 64\n.global .texref image;\n\
    .visible .entry copy(.param .u64 y, .param .u64 object) {\n.reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<4>;\n\
    ld.param.u64 %rd1, [y];\nld.param.u64 %rd2, [object];\nmov.u32 %r1, %tid.x;\n\
    tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [image, {%r1}];\ncvt.rn.f32.u32 %f5, %r1;\n\
    tex.2d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%rd2, {%f5, %f5}];\nadd.f32 %f1, %f1, %f6;\n\
    mad.wide.u32 %rd3, %r1, 4, %rd1;\nst.global.f32 [%rd3], %f1;\nret; }\n";

fn folder() -> (tempfile::TempDir, impl Fn(&str) -> String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    std::fs::write(path.join("k.ptx"), COPY).unwrap();
    (folder, move |name| path.join(name).to_str().unwrap().to_owned())
}

#[test]
fn the_command_binds_names_and_arguments() {
    let (_folder, file) = folder();
    let ptx = file("k.ptx");
    let launch = [ptx.as_str(), "--grid", "1", "--block", "4", "--arg", "out:f32:4", "--json"];
    let object = ["--arg", "tex:f32x2:iota:2x2:linear"];
    let (code, out, err) =
        subcommand("sim", &[&launch[..], &object, &["--texture", "image=tex:f32:fill=100:3"]].concat(), "");
    assert_eq!(code, Some(0), "{out}{err}");
    let account: Value = serde_json::from_str(&out).unwrap();
    // The second numbers of the texels are 1, 3, 5, 7; beyond the last texel of `image` are zeros.
    let expected = ["101", "104", "107", "7"];
    assert_eq!(account["outputs"][0]["first"], json!(expected), "{out}");
    let (code, out, _) = subcommand("sim", &[&launch[..], &object].concat(), "");
    assert_eq!(code, Some(1), "nothing is bound to the name\n{out}");
    assert!(out.contains("no texture or surface is bound"), "{out}");
    for (argument, part) in [("tex:f64:iota:4", "texels are of f16"), ("tex:f32:iota:2x2:nearest", "point or linear")] {
        let (code, _, err) = subcommand("sim", &[&launch[..], &["--arg", argument]].concat(), "");
        assert_eq!(code, Some(2), "{argument}");
        assert!(err.contains(part), "{err}");
    }
    let (code, _, err) = subcommand("sim", &[&launch[..], &object, &["--texture", "image=f32:fill=1:3"]].concat(), "");
    assert!(code == Some(2) && err.contains("expected a name and a texture"), "{err}");
}

#[test]
fn the_server_binds_names_and_arguments() {
    let (_folder, file) = folder();
    let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    std::fs::write(file("y.bin"), bytes(&[0.0; 4])).unwrap();
    std::fs::write(file("t.bin"), bytes(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])).unwrap();
    let request = |extents: Value| {
        json!({"ptx": file("k.ptx"), "grid": [1, 1, 1], "block": [4, 1, 1], "buffers": [file("y.bin"), file("t.bin")],
            "arguments": [{"buffer": {"index": 0}}, {"texture": {"buffer": 1, "texel": "f32x2", "extents": extents, "row_bytes": 16}}],
            "textures": {"image": {"buffer": 1, "offset": 16, "texel": "f32", "extents": [4]}}})
    };
    let input = format!("{}\n{}\n", request(json!([2, 2])), request(json!([2, 3])));
    let (code, out, err) = subcommand("sim-server", &[], &input);
    assert_eq!(code, Some(0), "{err}");
    let replies: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(replies[0]["findings"], json!([]), "{out}");
    assert!(replies[1]["error"].as_str().unwrap().contains("past its allocation"), "{out}");
    let found = std::fs::read(file("y.bin")).unwrap();
    assert_eq!(found, bytes(&[5.0 + 2.0, 6.0 + 8.0, 7.0 + 8.0, 8.0 + 8.0]));
}
