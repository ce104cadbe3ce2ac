//! Operands as tensor maps take them: in place, or copied to rows of a multiple of 16 bytes first.

use crate::core::gpu::multiprocessors;
use crate::core::launch::Launch;
use crate::core::tensor_map::TensorMap;
use crate::core::work::Work;

/// Elements of 16 bytes, of which the rows behind a tensor map must have a multiple.
const UNIT: usize = 8;
/// Bytes of an element: the kernels that take tensor maps are for f16 and bf16.
pub const ELEMENT_BYTES: usize = 2;
/// Blocks that copy an operand, of a multiprocessor at the most, and threads of each.
const COPYING_BLOCKS: usize = 8;
const COPYING_THREADS: usize = 256;

/// Whether a tensor map takes rows of so many elements as they are.
pub fn is_aligned(cols: usize) -> bool {
    cols.is_multiple_of(UNIT)
}

/// About how long a copy to rows for tensor maps takes that reads and writes so many bytes, µs: the median of what 58 random products
/// with such operands took on an H200 beside the estimate of the product alone.
pub fn copy_us(bytes: usize) -> f64 {
    2.0 + bytes as f64 / 2.7e6
}

/// A matrix, or several of the same extents behind each other.
pub struct Aligned {
    /// The buffer.
    pub name: &'static str,
    /// Rows of all matrices.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Where a copy stands in the workspace, in elements.
    pub offset: usize,
}

impl Aligned {
    fn pitch(&self) -> usize {
        self.cols.next_multiple_of(UNIT)
    }

    /// Elements that the copy takes in the workspace.
    pub fn copied_elements(&self) -> usize {
        if is_aligned(self.cols) { 0 } else { self.rows * self.pitch() }
    }

    fn place(&self, map: impl Fn(&'static str) -> TensorMap) -> TensorMap {
        if is_aligned(self.cols) { map(self.name) } else { map("workspace").offset(self.offset * ELEMENT_BYTES) }
    }

    /// A map of one matrix.
    pub fn map(&self) -> TensorMap {
        self.place(|buffer| TensorMap::of(buffer, [self.rows, self.cols]).strides([self.pitch()]))
    }

    /// A map of matrices of `rows` rows each: nothing that lies past one is a part of the next.
    pub fn map_of_matrices(&self, rows: usize) -> TensorMap {
        let extents = [self.rows / rows, rows, self.cols];
        let strides = [rows * self.pitch(), self.pitch()];
        self.place(|buffer| TensorMap::of(buffer, extents).strides(strides))
    }

    /// The launch of `entry` that makes the copy, if one is needed: it takes the buffer, the workspace, the offset, rows,
    /// columns and the elements from a row to the next.
    pub fn copy(&self, entry: &str) -> Option<Launch> {
        let packs = self.rows * self.pitch() / UNIT;
        let blocks = packs.div_ceil(COPYING_THREADS).min(COPYING_BLOCKS * multiprocessors());
        let launch = Launch::blocks(blocks, COPYING_THREADS).entry(entry).without_pointers();
        let launch = launch.pointer(self.name).pointer("workspace").scalar(self.offset as i64);
        let launch = launch.scalar(self.rows as i32).scalar(self.cols as i32).scalar(self.pitch() as i32);
        let [read, written] = [self.cols, self.pitch()].map(|cols| self.rows * cols * ELEMENT_BYTES);
        let launch = launch.shares(Work::copy(read, written));
        (!is_aligned(self.cols)).then_some(launch)
    }
}
