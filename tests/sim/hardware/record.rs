//! What a GPU gave, on disk, packed: a line for each launch in `outputs.txt`, raw bytes in `near.bin` where bits do not agree.

use super::launches::Launched;
use half::{bf16, f16};
use kernelgate::core::dtype::DType;
use kernelgate::core::packed;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::Path;

/// Longest output that is kept raw.
const MOST_RAW: usize = 24 << 10;

/// What the words of an output are, for distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// 4 bytes each.
    F32,
    /// 2 bytes each.
    F16,
    Bf16,
    /// In the low bits of 8 bytes each.
    WideF32,
    WideF16,
    WideBf16,
    F64,
}

impl Format {
    /// Of the result of an operation.
    pub fn of(opcode: &str) -> Format {
        match opcode.rsplit('.').next().unwrap_or_default() {
            "f16" => Format::WideF16,
            "bf16" => Format::WideBf16,
            "f64" => Format::F64,
            _ => Format::WideF32,
        }
    }

    /// Of an output of a kernel.
    pub fn of_values(dtype: DType) -> Format {
        match dtype {
            DType::F16 => Format::F16,
            DType::BF16 => Format::Bf16,
            _ => Format::F32,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Format::F16 | Format::Bf16 => 2,
            Format::F32 => 4,
            _ => 8,
        }
    }

    /// The value and its place in the order of the format, by which distances are counted.
    fn decode(self, bytes: &[u8]) -> (f64, i64) {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        let (value, width) = match self {
            Format::F32 | Format::WideF32 => (f64::from(f32::from_bits(bits as u32)), 32),
            Format::F16 | Format::WideF16 => (f16::from_bits(bits as u16).to_f64(), 16),
            Format::Bf16 | Format::WideBf16 => (bf16::from_bits(bits as u16).to_f64(), 16),
            Format::F64 => (f64::from_bits(bits), 64),
        };
        let magnitude = (bits & ((1u64 << (width - 1)) - 1)) as i64;
        (value, if bits >> (width - 1) & 1 == 1 { -magnitude } else { magnitude })
    }
}

/// How far two outputs are from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Distance {
    /// Units in the last place, among pairs of finite numbers.
    pub places: u64,
    /// Pairs of which one only is NaN, or infinite.
    pub classes: u64,
    /// Pairs with other bits.
    pub different: u64,
}

impl Distance {
    pub fn between(there: &[u8], here: &[u8], format: Format) -> Distance {
        let mut distance = Distance { classes: u64::from(there.len() != here.len()), ..Distance::default() };
        for (there, here) in there.chunks(format.bytes()).zip(here.chunks(format.bytes())) {
            let ((a, at), (b, bt)) = (format.decode(there), format.decode(here));
            distance.different += u64::from(there != here);
            if a.is_finite() && b.is_finite() {
                distance.places = distance.places.max(at.abs_diff(bt));
            } else {
                distance.classes += u64::from(!(a.is_nan() && b.is_nan()) && a != b);
            }
        }
        distance
    }
}

pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The files that a run on a GPU left.
pub struct Results {
    index: Value,
    bytes: Vec<u8>,
}

impl Results {
    pub fn read(folder: &Path) -> Results {
        let file = |name: &str| std::fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        Results { index: serde_json::from_slice(&file("outputs.json")).expect("JSON"), bytes: file("outputs.bin") }
    }

    /// The output buffers of a launch, one behind the other.
    pub fn outputs(&self, name: &str) -> Option<Vec<u8>> {
        let ranges = self.index["jobs"].get(name)?.as_array()?;
        let number = |value: &Value| value.as_u64().map(|value| value as usize);
        let range = |range: &Value| Some(self.bytes[number(&range[0])?..][..number(&range[1])?].to_vec());
        ranges.iter().map(range).collect::<Option<Vec<_>>>().map(|buffers| buffers.concat())
    }

    pub fn failure(&self, name: &str) -> String {
        self.index["failed"][name].as_str().unwrap_or("did not run").to_owned()
    }
}

/// One launch in the record.
#[derive(Debug, Clone)]
pub struct Line {
    pub name: String,
    /// What was launched: another text or other inputs give another one.
    pub of: String,
    pub agreed_in_bits: bool,
    pub distance: Distance,
    pub digest: String,
    /// Bytes in `near.bin`.
    raw: Option<(usize, usize)>,
}

pub struct Record {
    device: String,
    pub lines: Vec<Line>,
    sweeps: Vec<String>,
    near: Vec<u8>,
}

fn path(file: &str) -> String {
    format!("{}/fixtures/hardware/{file}.xz", env!("CARGO_MANIFEST_DIR"))
}

impl Record {
    /// An empty record of a device, with the maxima of the sweeps.
    pub fn new(results: &Results) -> Record {
        let device = format!(
            "{} with CUDA driver {}",
            results.index["device"].as_str().unwrap_or_default(),
            results.index["driver"]
        );
        let jobs = results.index["jobs"].as_object().into_iter().flat_map(|jobs| jobs.keys());
        let sweep = |name: &String| {
            let bytes = results.outputs(name)?;
            let word = |at: usize| bytes.get(4 * at..4 * at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            let (places, absolute) = (f32::from_bits(word(1)?), f32::from_bits(word(3)?));
            Some(format!("{name}\t{places}\t{:08x}\t{absolute:e}\t{:08x}", word(0)?, word(2)?))
        };
        let sweeps = jobs.filter(|name| name.starts_with("sweep_")).filter_map(sweep).collect();
        Record { device, lines: Vec::new(), sweeps, near: Vec::new() }
    }

    pub fn add(&mut self, launched: &Launched, there: &[u8], distance: Distance) {
        let agreed_in_bits = distance.different == 0;
        let raw = (!agreed_in_bits && there.len() <= MOST_RAW).then(|| {
            self.near.extend(there);
            (self.near.len() - there.len(), there.len())
        });
        let (name, of, digest) = (launched.name.clone(), launched.identity(), digest(there));
        self.lines.push(Line { name, of, agreed_in_bits, distance, digest, raw });
    }

    pub fn write(&self) {
        let mut text = format!(
            "# What {} gave. Columns: launch, what it was, bits agreed, units in the last place, other classes, other bits, digest, bytes in near.bin.\n",
            self.device
        );
        for line in &self.lines {
            let Distance { places, classes, different } = line.distance;
            let raw = line.raw.map_or("-".into(), |(start, length)| format!("{start}+{length}"));
            let bits = if line.agreed_in_bits { "bits" } else { "near" };
            text += &format!(
                "{}\t{}\t{bits}\t{places}\t{classes}\t{different}\t{}\t{raw}\n",
                line.name, line.of, line.digest
            );
        }
        text += "# Sweeps over 2^32 inputs. Columns: operation, largest error in units in the last place, its input, largest absolute error, its input.\n";
        self.sweeps.iter().for_each(|sweep| text += &format!("{sweep}\n"));
        for (file, content) in [("outputs.txt", text.as_bytes()), ("near.bin", &self.near)] {
            packed::pack(content).and_then(|packed| std::fs::write(path(file), packed)).expect(file);
        }
    }

    pub fn read() -> Record {
        let read = |file: &str| std::fs::read(path(file));
        let text = read("outputs.txt").and_then(packed::text).unwrap_or_else(|e| panic!("outputs.txt.xz: {e}"));
        let near =
            read("near.bin").and_then(|file| packed::unpack(&file)).unwrap_or_else(|e| panic!("near.bin.xz: {e}"));
        let title = text.lines().next().unwrap_or_default();
        let device = title.trim_start_matches("# What ").split(" gave.").next().unwrap_or_default().to_owned();
        let lines = text.lines().filter_map(|line| {
            let [name, of, bits, places, classes, different, digest, raw] = *line.split('\t').collect::<Vec<_>>()
            else {
                return None;
            };
            let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("outputs.txt: `{text}` in {line}"));
            let raw = raw.split_once('+').map(|(start, length)| (number(start) as usize, number(length) as usize));
            Some(Line {
                name: name.into(),
                of: of.into(),
                agreed_in_bits: bits == "bits",
                distance: Distance { places: number(places), classes: number(classes), different: number(different) },
                digest: digest.into(),
                raw,
            })
        });
        let sweeps = text.lines().filter(|line| line.starts_with("sweep_")).map(str::to_owned).collect();
        Record { device, lines: lines.collect(), sweeps, near }
    }

    /// The same without lines that nothing is compared with any more, and their bytes.
    pub fn of(self, is_compared: impl Fn(&Line) -> bool) -> Record {
        let mut near = Vec::new();
        let mut lines = self.lines;
        lines.retain(is_compared);
        for range in lines.iter_mut().filter_map(|line| line.raw.as_mut()) {
            near.extend(&self.near[range.0..range.0 + range.1]);
            range.0 = near.len() - range.1;
        }
        Record { lines, near, ..self }
    }

    /// The record for people.
    pub fn table(&self) -> String {
        let is_kernel = |line: &&Line| line.name.contains('#');
        let count = |kernels: bool, bits: bool| {
            self.lines.iter().filter(|line| is_kernel(line) == kernels && line.agreed_in_bits == bits).count()
        };
        let mut text = format!(
            "{}\n\n| launches | same bits | near |\n|---|---|---|\n| operations, warp and matrix families, boxes | {} | {} |\n| kernels of the catalogue, of fixtures and by Triton, at several shapes | {} | {} |\n",
            self.device,
            count(false, true),
            count(false, false),
            count(true, true),
            count(true, false)
        );
        text += "\nWhat is not the same in bits, apart from kernels that use it:\n\n| operation | other results | farthest, units in the last place | other classes |\n|---|---|---|---|\n";
        for line in self.lines.iter().filter(|line| !line.agreed_in_bits && !is_kernel(line)) {
            let Distance { places, classes, different } = line.distance;
            text += &format!("| `{}` | {different} | {places} | {classes} |\n", line.name);
        }
        text += "\nThe largest errors of the GPU itself over 2^32 inputs, against double precision:\n\n| operation | units in the last place | at | absolute | at |\n|---|---|---|---|---|\n";
        for sweep in &self.sweeps {
            text += &format!("| {} |\n", sweep.trim_start_matches("sweep_").replace('\t', " | "));
        }
        text
    }

    /// The bytes of a launch that differs in bits, if it is short enough to be kept.
    pub fn raw(&self, line: &Line) -> Option<&[u8]> {
        line.raw.map(|(start, length)| &self.near[start..start + length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_counted_in_places_of_the_format() {
        let f32s = |a: f32, b: f32| Distance::between(&a.to_le_bytes(), &b.to_le_bytes(), Format::F32);
        assert_eq!(f32s(1.0, 1.0f32.next_up()), Distance { places: 1, classes: 0, different: 1 });
        assert_eq!(f32s(0.0, -0.0), Distance { places: 0, classes: 0, different: 1 });
        assert_eq!(f32s(f32::NAN, f32::INFINITY), Distance { places: 0, classes: 1, different: 1 });
        assert_eq!(f32s(f32::MIN_POSITIVE, -f32::MIN_POSITIVE).places, 2 << 23);
        let half = |bits: u64| bits.to_le_bytes();
        assert_eq!(Distance::between(&half(0x3C00), &half(0x3C03), Format::WideF16).places, 3);
    }
}
