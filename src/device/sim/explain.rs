//! What the simulator says, in the words of the gate: buffers by their names, errors as faults, metrics as counts.

use crate::device::counts::{Counts, Traffic};
use crate::device::fault::Fault;
use crate::sim::{self, Error, Finding, InstructionClass, Metrics, Pointer};
use crate::toolchain::committed::ARCH;
use std::collections::BTreeMap;

/// A buffer of the case in simulated memory: its allocation, and where in it the buffer lies.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The name of the input or output.
    pub name: String,
    /// The start of the allocation.
    pub pointer: Pointer,
    /// Bytes before the buffer.
    pub lead: usize,
    /// Bytes of the buffer.
    pub bytes: usize,
}

/// Findings as the lines of a report, each with the buffer that its address belongs to.
pub fn findings(found: &[Finding], buffers: &[Placed]) -> Fault {
    let line = |finding: &Finding| match finding.address.and_then(|address| position(address, buffers)) {
        Some(position) => format!("{finding}; {position}"),
        None => finding.to_string(),
    };
    Fault::Findings(found.iter().map(line).collect())
}

/// Where an address lies: `byte 12 of `y`` or `4 bytes past the end of `y``.
fn position(address: u64, buffers: &[Placed]) -> Option<String> {
    // Allocations lie far apart: the nearest one below an address is the one it strayed from.
    let buffer = buffers.iter().filter(|buffer| buffer.pointer.address() <= address).max_by_key(|b| b.pointer)?;
    let (offset, lead) = ((address - buffer.pointer.address()) as usize, buffer.lead);
    let name = &buffer.name;
    Some(if offset >= 1 << 33 {
        return None;
    } else if offset < lead {
        format!("{} bytes before `{name}`", lead - offset)
    } else if offset - lead < buffer.bytes {
        format!("byte {} of the {} of `{name}`", offset - lead, buffer.bytes)
    } else {
        format!("{} bytes past the end of `{name}`", offset - lead - buffer.bytes)
    })
}

/// The counts of several launches as one.
pub fn counted(compiler: &str, launches: &[Metrics]) -> Counts {
    let mut counts = Counts { compiler: compiler.into(), arch: ARCH.into(), ..Counts::default() };
    let mut classes: BTreeMap<InstructionClass, u64> = BTreeMap::new();
    let add = |sum: &mut Traffic, more: &sim::Traffic| {
        sum.bytes += more.bytes;
        sum.units += more.units;
        sum.ideal_units += more.ideal_units;
    };
    for launch in launches {
        for (class, count) in &launch.warp_instructions {
            *classes.entry(*class).or_default() += count;
        }
        counts.idle_lanes += 32 * launch.warp_instructions_total - launch.lane_instructions_total;
        counts.divergent_branches += launch.divergent_branches;
        counts.barriers += launch.barriers;
        add(&mut counts.global_reads, &launch.global_reads);
        add(&mut counts.global_writes, &launch.global_writes);
        add(&mut counts.shared_reads, &launch.shared_reads);
        add(&mut counts.shared_writes, &launch.shared_writes);
    }
    counts.instructions = classes.into_iter().map(|(class, count)| (class.name().into(), count)).collect();
    counts
}

/// An error of the simulator about a program called `file`.
pub fn fault(file: &str, error: Error) -> Fault {
    match error {
        Error::Unsupported { opcode, line } => Fault::Unsupported(format!(
            "unsupported: `{opcode}` ({file}, PTX line {line}) is not modelled by the simulator; run this kernel on a GPU"
        )),
        Error::Parse { line, message } => Fault::Compile { log: format!("{file}, PTX line {line}: {message}") },
        Error::Launch(message) => Fault::Launch(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Memory;

    #[test]
    fn addresses_are_told_by_buffer() {
        let mut memory = Memory::new();
        let placed = |name: &str, pointer, lead, bytes| Placed { name: name.into(), pointer, lead, bytes };
        let x = placed("x", memory.alloc(48, None).unwrap(), 16, 32);
        let y = placed("y", memory.alloc(8, None).unwrap(), 0, 8);
        let buffers = [x.clone(), y.clone()];
        let told = |pointer: Pointer, offset| position(pointer.offset(offset).address(), &buffers).unwrap();
        assert_eq!(told(x.pointer, 16), "byte 0 of the 32 of `x`");
        assert_eq!(told(x.pointer, 12), "4 bytes before `x`");
        assert_eq!(told(x.pointer, 52), "4 bytes past the end of `x`");
        assert_eq!(told(y.pointer, 8), "0 bytes past the end of `y`");
        assert_eq!(position(0, &buffers), None);
    }

    #[test]
    fn what_is_not_modelled_is_a_skip_with_opcode_and_line() {
        let fault = fault("k.ptx", Error::Unsupported { opcode: "tcgen05.mma".into(), line: 7 });
        assert!(
            matches!(fault, Fault::Unsupported(why) if why.starts_with("unsupported: `tcgen05.mma` (k.ptx, PTX line 7)"))
        );
    }
}
