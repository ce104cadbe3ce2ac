//! Rows of a table, gathered by index.

use std::fmt;

use super::lane::Lane;
use super::threads::for_each_piece;

/// An index that names no row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchRow {
    /// Where in the list of indices.
    pub position: usize,
    /// The index itself.
    pub index: i32,
    /// Rows of the table.
    pub vocab: usize,
}

impl fmt::Display for NoSuchRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoSuchRow { position, index, vocab } = self;
        write!(
            f,
            "index {index} at position {position} names no row of the table: expected 0..{vocab}; \
             draw the indices from the table's rows"
        )
    }
}

impl std::error::Error for NoSuchRow {}

/// `y[i] = table[indices[i]]` for rows of `dim` elements; `y` is untouched on an error.
///
/// # Errors
/// The first index that is negative or past the table.
///
/// # Panics
/// If `table` is not whole rows, or `y` does not have `indices.len() * dim` elements.
pub fn embedding<T: Lane>(dim: usize, table: &[T], indices: &[i32], y: &mut [T]) -> Result<(), NoSuchRow> {
    assert_eq!(y.len(), indices.len() * dim, "y is not ids x dim");
    if y.is_empty() {
        return Ok(());
    }
    assert_eq!(table.len() % dim, 0, "the table is not whole rows of dim");
    let vocab = table.len() / dim;
    let row = |index: i32| usize::try_from(index).ok().filter(|&row| row < vocab);
    if let Some(position) = indices.iter().position(|&index| row(index).is_none()) {
        return Err(NoSuchRow { position, index: indices[position], vocab });
    }
    for_each_piece(dim, y, &|first, y| {
        for (y, &index) in y.chunks_exact_mut(dim).zip(&indices[first..]) {
            y.copy_from_slice(&table[index as usize * dim..][..dim]);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(1, 5, &[0, 4, 4, 2])]
    #[case(3, 2, &[1, 0])]
    #[case(700, 90, &[89; 90])]
    fn rows_are_gathered(#[case] dim: usize, #[case] vocab: usize, #[case] indices: &[i32]) {
        let table: Vec<f32> = (0..vocab * dim).map(|i| i as f32).collect();
        let mut y = vec![f32::NAN; indices.len() * dim];
        embedding(dim, &table, indices, &mut y).unwrap();
        for (i, y) in y.iter().enumerate() {
            assert_eq!(*y, (indices[i / dim] as usize * dim + i % dim) as f32);
        }
    }

    #[rstest]
    #[case(&[0, 3, 9], 1, 3)]
    #[case(&[2, 1, -1], 2, -1)]
    fn an_index_outside_the_table_is_an_error(#[case] indices: &[i32], #[case] position: usize, #[case] index: i32) {
        let mut y = vec![7.0; 6];
        let error = embedding(2, &[0.0; 6], indices, &mut y).unwrap_err();
        assert_eq!(error, NoSuchRow { position, index, vocab: 3 });
        assert!(error.to_string().contains("0..3"), "{error}");
        assert_eq!(y, [7.0; 6]);
    }
}
