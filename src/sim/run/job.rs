//! What the turns of clusters and warps work on.

use crate::sim::ir::program::Program;
use crate::sim::machine::grid::Grid;
use std::ops::Deref;

/// A grid and the program that it runs.
pub(super) struct Job<'a> {
    pub program: &'a Program,
    pub grid: Grid<'a>,
}

impl<'a> Deref for Job<'a> {
    type Target = Grid<'a>;

    fn deref(&self) -> &Grid<'a> {
        &self.grid
    }
}
