//! What can go wrong when a candidate runs, each with what a person needs to mend it.

use crate::toolchain;
use std::fmt;

/// Why a candidate did not give outputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// This device cannot run it; a skip, not a failure.
    Unsupported(String),
    /// The source does not compile.
    Compile {
        /// The compiler's messages.
        log: String,
    },
    /// The launch does not fit the kernel: arguments, block size, shared memory.
    Signature(String),
    /// Bytes outside the buffers were written.
    Guard {
        /// The buffer next to them.
        buffer: String,
        /// Distance of the first such byte: from the end of the buffer (positive) or its start (negative).
        offset: i64,
    },
    /// An input was written.
    InputModified {
        /// Which one.
        input: String,
        /// The first changed byte.
        offset: usize,
    },
    /// The candidate panicked.
    Panic(String),
    /// The device reported an error that it recovers from.
    Launch(String),
    /// Work was put on another stream than the given one.
    Escaped {
        /// The output that gave it away.
        output: String,
        /// How.
        how: Escape,
    },
    /// The device is gone for this process: an illegal access, a trap.
    Crash(String),
    /// It did not end in time; the device is gone for this process.
    Timeout {
        /// How long it was given, s.
        seconds: f64,
    },
    /// What the simulator's checks found.
    Findings(Vec<String>),
    /// Another process that was to compute the case did something else: `died when asked for …`.
    Peer(String),
}

/// How work on another stream shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// It ran before what stands before it on its own stream had ended.
    Early,
    /// It went on after its own stream had come to what stands behind it.
    Late,
}

impl Fault {
    /// The check that this fault belongs to, as reports name it.
    pub fn check(&self) -> &'static str {
        match self {
            Fault::Unsupported(_) => "unsupported",
            Fault::Compile { .. } => "compile",
            Fault::Signature(_) => "signature",
            Fault::Guard { .. } => "guard",
            Fault::InputModified { .. } => "input",
            Fault::Panic(_) => "panic",
            Fault::Launch(_) => "launch",
            Fault::Escaped { .. } => "escape",
            Fault::Crash(_) => "crash",
            Fault::Timeout { .. } => "timeout",
            Fault::Findings(_) => "finding",
            Fault::Peer(_) => "peer",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unsupported(why) => write!(f, "not supported here: {why}"),
            Fault::Compile { log } => write!(f, "the kernel does not compile:\n{}", log.trim_end()),
            Fault::Signature(what) => write!(f, "the launch does not fit the kernel: {what}"),
            Fault::Guard { buffer, offset } if *offset < 0 => {
                write!(f, "wrote out of bounds: {} bytes before the start of `{buffer}`", -offset)
            }
            Fault::Guard { buffer, offset } => {
                write!(f, "wrote out of bounds: {offset} bytes past the end of `{buffer}`")
            }
            Fault::InputModified { input, offset } => {
                write!(f, "modified its input `{input}`, first at byte {offset}; inputs are read-only")
            }
            Fault::Panic(message) => write!(f, "the candidate panicked: {message}"),
            Fault::Launch(message) => write!(f, "the launch failed: {message}"),
            Fault::Escaped { output, how: Escape::Early } => write!(
                f,
                "`{output}` was written before its inputs were there: work was put on another stream, where it does \
                 not wait for what stands before it"
            ),
            Fault::Escaped { output, how: Escape::Late } => write!(
                f,
                "`{output}` still changed when the stream had come to what reads it: work was put on another stream, \
                 where it is neither waited for nor timed"
            ),
            Fault::Crash(message) => {
                write!(f, "the device crashed: {message}. The simulator names the line: repeat it with `--device sim`")
            }
            Fault::Timeout { seconds } => {
                write!(
                    f,
                    "still running after {seconds} s; an endless loop or a deadlock. The simulator names the line: repeat it \
                     with `--device sim`"
                )
            }
            Fault::Peer(what) => write!(f, "the peer {what}"),
            Fault::Findings(findings) => {
                write!(f, "the simulator found {}", findings.first().map_or("nothing", String::as_str))?;
                findings.iter().skip(1).take(7).try_for_each(|finding| write!(f, "\nand {finding}"))?;
                if findings.len() > 8 { write!(f, "\nand {} more", findings.len() - 8) } else { Ok(()) }
            }
        }
    }
}

impl std::error::Error for Fault {}

impl From<toolchain::Error> for Fault {
    fn from(error: toolchain::Error) -> Self {
        match error {
            toolchain::Error::NoCompiler(why) => Fault::Unsupported(why),
            toolchain::Error::Compile { log } => Fault::Compile { log },
        }
    }
}
