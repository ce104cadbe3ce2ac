//! The buffers of a case by name, and the arguments that launches make of them.

use super::subject::{Argument, View};
use kernelgate::core::launch::{Argument as Planned, Launch as Plan};
use kernelgate::core::tensor_map::{Swizzle as Layout, TensorMap};
use kernelgate::sim::Swizzle;

/// A buffer is made by the argument that names it first; from then on it has a number.
pub struct Buffers {
    all: Vec<(String, Argument, Option<usize>)>,
    /// Arguments and spare buffers so far.
    count: usize,
}

impl Buffers {
    pub fn new(inputs: impl Iterator<Item = (String, Argument)>) -> Buffers {
        Buffers { all: inputs.map(|(name, argument)| (name, argument, None)).collect(), count: 0 }
    }

    pub fn add(&mut self, name: &str, argument: Argument) {
        self.all.push((name.to_owned(), argument, None));
    }

    pub fn number(&self, name: &str) -> Option<usize> {
        self.all.iter().find(|(known, ..)| known == name)?.2
    }

    /// The arguments of a launch; `None` where it takes a view that a subject cannot hold.
    pub fn arguments(&mut self, plan: &Plan) -> Option<Vec<Argument>> {
        let is_mapped = |name: &str| {
            plan.arguments.iter().any(|argument| matches!(argument, Planned::Map(map) if map.buffer == name))
        };
        let mut arguments = Vec::new();
        if plan.pointers {
            for at in 0..self.all.len() {
                arguments.push(self.pass(at));
            }
        }
        for argument in &plan.arguments {
            let argument = match argument {
                Planned::Scalar(scalar) => Argument::Scalar(scalar.bytes()),
                // A kernel that has a map of a buffer leaves the pointer alone.
                Planned::Pointer { buffer, .. } if is_mapped(buffer) => Argument::Scalar(vec![0; 8]),
                Planned::Pointer { buffer, offset_bytes: 0 } => {
                    let at = self.all.iter().position(|(known, ..)| known == buffer)?;
                    self.pass(at)
                }
                Planned::Pointer { .. } => return None,
                Planned::Map(map) => Argument::Map(self.view(map)?),
            };
            // A scalar has a number too, but behind the first launch nothing is counted.
            self.count += usize::from(matches!(argument, Argument::Scalar(_)));
            arguments.push(argument);
        }
        Some(arguments)
    }

    /// What no launch has taken yet, numbered from here on.
    pub fn rest(&mut self) -> Vec<Argument> {
        let free: Vec<usize> = (0..self.all.len()).filter(|at| self.all[*at].2.is_none()).collect();
        free.into_iter().map(|at| self.pass(at)).collect()
    }

    fn pass(&mut self, at: usize) -> Argument {
        let (_, argument, number) = &mut self.all[at];
        if let Some(number) = number {
            return Argument::Again(*number);
        }
        *number = Some(self.count);
        self.count += 1;
        argument.clone()
    }

    /// A map of a whole packed matrix that nothing has named before.
    fn view(&mut self, map: &TensorMap) -> Option<View> {
        let at = self.all.iter().position(|(known, ..)| *known == map.buffer)?;
        let ([rows, columns], [box_rows, box_columns]) = (map.extents.as_slice(), map.tile.as_slice()) else {
            return None;
        };
        let is_packed = map.offset_bytes == 0 && map.strides.as_ref().is_none_or(|strides| strides == &[*columns]);
        let (_, argument, number) = &mut self.all[at];
        let (data, bytes) = match argument {
            Argument::Input(data) => (Some(data.clone()), data.len()),
            Argument::Output(bytes) if number.is_none() => (None, *bytes),
            _ => return None,
        };
        let element_bytes = (bytes / (rows * columns).max(1)) as u32;
        if !is_packed || map.buffer == "workspace" || element_bytes == 0 {
            return None;
        }
        // A second view of an input has a copy of its own.
        number.get_or_insert(self.count);
        self.count += 1;
        Some(View {
            data,
            element_bytes,
            rows: *rows as u64,
            columns: *columns as u64,
            box_rows: *box_rows as u32,
            box_columns: *box_columns as u32,
            swizzle: match map.swizzle {
                Layout::None => Swizzle::None,
                Layout::Bytes32 => Swizzle::Bytes32,
                Layout::Bytes64 => Swizzle::Bytes64,
                Layout::Bytes128 => Swizzle::Bytes128,
            },
        })
    }
}
