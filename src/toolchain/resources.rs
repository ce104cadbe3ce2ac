//! What `ptxas` says of the entries that it compiled: registers, spills, shared memory.

use std::fmt;

/// What one entry takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// The entry.
    pub entry: String,
    /// Registers a thread.
    pub registers: usize,
    /// Bytes of the stack frame of a thread.
    pub stack_bytes: usize,
    /// Bytes of all stores and loads that spill registers.
    pub spill_bytes: usize,
    /// Static shared memory of a block.
    pub shared_bytes: usize,
    /// Named barriers of a block.
    pub barriers: usize,
}

impl Resources {
    /// Reads the messages of `--ptxas-options=-v`, and returns the entries by name.
    pub fn parse(log: &str) -> Vec<Resources> {
        let mut all: Vec<Resources> = Vec::new();
        for line in log.lines() {
            if let Some((_, rest)) = line.split_once("Compiling entry function '") {
                let entry = rest.split('\'').next().unwrap_or_default().to_owned();
                all.push(Resources { entry, ..Resources::default() });
            }
            let Some(last) = all.last_mut() else { continue };
            if line.contains("bytes stack frame") {
                last.stack_bytes = number_before(line, " bytes stack frame");
                last.spill_bytes =
                    number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
            }
            if line.contains("Used ") {
                last.registers = number_before(line, " registers");
                last.shared_bytes = number_before(line, " bytes smem");
                last.barriers = number_before(line, " barriers");
            }
        }
        all.sort_by(|a, b| a.entry.cmp(&b.entry));
        all
    }

    /// Reads the line that [`Resources`] are displayed as.
    pub fn from_line(line: &str) -> Option<Resources> {
        let mut words = line.split_whitespace();
        let mut found = Resources { entry: words.next()?.into(), ..Resources::default() };
        for word in words {
            let (name, value) = word.split_once('=')?;
            let field = match name {
                "registers" => &mut found.registers,
                "stack" => &mut found.stack_bytes,
                "spills" => &mut found.spill_bytes,
                "shared" => &mut found.shared_bytes,
                "barriers" => &mut found.barriers,
                _ => return None,
            };
            *field = value.parse().ok()?;
        }
        Some(found)
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Resources { entry, registers, stack_bytes, spill_bytes, shared_bytes, barriers } = self;
        write!(
            f,
            "{entry} registers={registers} stack={stack_bytes} spills={spill_bytes} shared={shared_bytes} \
             barriers={barriers}"
        )
    }
}

/// The number before `unit` in a line such as `Used 32 registers, used 1 barriers, 1024 bytes smem`.
fn number_before(line: &str, unit: &str) -> usize {
    let head = line.split(unit).next().filter(|head| head.len() < line.len()).unwrap_or_default();
    head.split_whitespace().next_back().and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_ptxas_are_read_and_survive_a_line() {
        let log = "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n\
                   ptxas info    : Function properties for k\n\
                   \x20   16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n\
                   ptxas info    : Used 40 registers, used 1 barriers, 1024 bytes smem, 400 bytes cmem[0]\n";
        let expected = Resources {
            entry: "k".into(),
            registers: 40,
            stack_bytes: 16,
            spill_bytes: 12,
            shared_bytes: 1024,
            barriers: 1,
        };
        assert_eq!(Resources::parse(log), std::slice::from_ref(&expected));
        assert_eq!(Resources::from_line(&expected.to_string()), Some(expected));
        assert_eq!(Resources::from_line("k registers=many"), None);
    }
}
