//! Where CUPTI's activity records hold their fields. Versions 12.8 to 13.5 agree on all that is read here: new fields were
//! added behind them. `ci/cupti-layouts.sh` prints the same from the headers of a CUPTI wheel, and a test compares.

/// A field of a record, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The record, as `ci/cupti-layouts.sh` calls it.
    pub record: &'static str,
    /// The field, as the header calls it.
    pub name: &'static str,
    /// Bytes before it.
    pub offset: usize,
    /// Bytes of it: up to eight.
    pub size: usize,
}

impl Field {
    /// Its value in a record; `None` behind the end.
    pub fn of(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset + self.size)?;
        let mut word = [0; 8];
        word[..self.size].copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }
}

macro_rules! fields {
    ($($record:ident { $($constant:ident = $name:literal at $offset:literal, $size:literal;)* })*) => {
        $(
            #[doc = concat!("Fields of a record of kind `", stringify!($record), "`.")]
            pub mod $record {
                use super::Field;
                $(
                    #[doc = concat!("`", $name, "`")]
                    pub const $constant: Field =
                        Field { record: stringify!($record), name: $name, offset: $offset, size: $size };
                )*
            }
        )*

        /// All of them.
        #[cfg(test)]
        pub const ALL: &[Field] = &[$($($record::$constant),*),*];
    };
}

fields! {
    kernel {
        REGISTERS = "registersPerThread" at 6, 2;
        START = "start" at 16, 8;
        END = "end" at 24, 8;
        STREAM = "streamId" at 48, 4;
        GRID_X = "gridX" at 52, 4;
        GRID_Y = "gridY" at 56, 4;
        GRID_Z = "gridZ" at 60, 4;
        BLOCK_X = "blockX" at 64, 4;
        BLOCK_Y = "blockY" at 68, 4;
        BLOCK_Z = "blockZ" at 72, 4;
        STATIC_SHARED = "staticSharedMemory" at 76, 4;
        DYNAMIC_SHARED = "dynamicSharedMemory" at 80, 4;
        CORRELATION = "correlationId" at 92, 4;
        NAME = "name" at 104, 8;
        NODE = "graphNodeId" at 144, 8;
    }
    memcpy {
        COPY_KIND = "copyKind" at 4, 1;
        BYTES = "bytes" at 8, 8;
        START = "start" at 16, 8;
        END = "end" at 24, 8;
        STREAM = "streamId" at 40, 4;
        CORRELATION = "correlationId" at 44, 4;
        NODE = "graphNodeId" at 64, 8;
    }
    memset {
        BYTES = "bytes" at 8, 8;
        START = "start" at 16, 8;
        END = "end" at 24, 8;
        STREAM = "streamId" at 40, 4;
        CORRELATION = "correlationId" at 44, 4;
        NODE = "graphNodeId" at 64, 8;
    }
    memory {
        OPERATION = "memoryOperationType" at 4, 4;
        CORRELATION = "correlationId" at 12, 4;
        BYTES = "bytes" at 24, 8;
        TIMESTAMP = "timestamp" at 32, 8;
    }
    api {
        CALLBACK = "cbid" at 4, 4;
        START = "start" at 8, 8;
        END = "end" at 16, 8;
        THREAD = "threadId" at 28, 4;
        CORRELATION = "correlationId" at 32, 4;
    }
    synchronization {
        START = "start" at 8, 8;
        END = "end" at 16, 8;
        CORRELATION = "correlationId" at 24, 4;
    }
    external {
        EXTERNAL = "externalId" at 8, 8;
        CORRELATION = "correlationId" at 16, 4;
    }
    graph {
        CORRELATION = "correlationId" at 4, 4;
        START = "start" at 8, 8;
        END = "end" at 16, 8;
        STREAM = "streamId" at 36, 4;
    }
}

/// The kinds of records that are asked for, by the header's numbers.
pub mod kinds {
    /// Copies.
    pub const MEMCPY: u32 = 1;
    /// Memory that is set.
    pub const MEMSET: u32 = 2;
    /// Calls into the driver.
    pub const DRIVER: u32 = 4;
    /// Kernels, those of graphs node by node.
    pub const CONCURRENT_KERNEL: u32 = 10;
    /// Waits for the device.
    pub const SYNCHRONIZATION: u32 = 38;
    /// What links calls to ranges of the program.
    pub const EXTERNAL_CORRELATION: u32 = 39;
    /// Memory that is taken and given back.
    pub const MEMORY2: u32 = 49;
    /// Graphs as a whole.
    pub const GRAPH_TRACE: u32 = 51;

    /// All but graphs as a whole, whose nodes would not be told then.
    pub const ASKED: [u32; 7] =
        [MEMCPY, MEMSET, DRIVER, CONCURRENT_KERNEL, SYNCHRONIZATION, EXTERNAL_CORRELATION, MEMORY2];
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// As the header of that version has it.
    fn header(version: &str) -> Vec<(String, String, usize, usize)> {
        let path = format!("{}/fixtures/cupti/{version}.tsv", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let line = |line: &str| {
            let [record, field, offset, size] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
            (record.to_owned(), field.to_owned(), offset.parse().unwrap(), size.parse().unwrap())
        };
        text.lines().map(line).collect()
    }

    #[rstest]
    fn fields_are_where_the_headers_have_them(#[values("12.8", "13.0", "13.5")] version: &str) {
        let header = header(version);
        for field in ALL {
            let found = header.iter().find(|(record, name, ..)| record == field.record && name == field.name);
            let (_, _, offset, size) = found.unwrap_or_else(|| panic!("{version} has no {field:?}"));
            assert_eq!((field.offset, field.size), (*offset, *size), "{version}: {field:?}");
        }
        let number = |name: &str| header.iter().find(|(record, kind, ..)| record == "kinds" && kind == name).unwrap().2;
        for (kind, name) in [
            (kinds::MEMCPY, "MEMCPY"),
            (kinds::MEMSET, "MEMSET"),
            (kinds::DRIVER, "DRIVER"),
            (kinds::CONCURRENT_KERNEL, "CONCURRENT_KERNEL"),
            (kinds::SYNCHRONIZATION, "SYNCHRONIZATION"),
            (kinds::EXTERNAL_CORRELATION, "EXTERNAL_CORRELATION"),
            (kinds::MEMORY2, "MEMORY2"),
            (kinds::GRAPH_TRACE, "GRAPH_TRACE"),
        ] {
            assert_eq!(kind as usize, number(name), "{version}: {name}");
        }
    }

    #[test]
    fn nothing_is_read_behind_the_end() {
        let field = Field { record: "r", name: "f", offset: 6, size: 2 };
        assert_eq!(field.of(&[0, 0, 0, 0, 0, 0, 0x34, 0x12, 9]), Some(0x1234));
        assert_eq!(field.of(&[0; 7]), None);
    }
}
