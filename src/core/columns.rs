//! Tables of text for a terminal: columns as wide as their widest cell.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use std::fmt;

/// A table that is laid out when all of its rows are known.
pub struct Columns(Table);

impl Columns {
    /// A table with these heads. One that begins with `>` names a column of numbers, which stand at its right end.
    pub fn new<'h>(heads: impl IntoIterator<Item = &'h str>) -> Self {
        let heads: Vec<&str> = heads.into_iter().collect();
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(heads.iter().map(|head| head.trim_start_matches('>')));
        for (column, head) in table.column_iter_mut().zip(heads) {
            column.set_padding((0, 2));
            if head.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Columns(table)
    }

    /// Adds a row; cells that are missing at its end are empty.
    pub fn row<C: ToString>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.0.add_row(cells.into_iter().map(|cell| cell.to_string()));
    }
}

impl fmt::Display for Columns {
    /// Lines that end where their text does, each with a line end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lines().try_for_each(|line| writeln!(f, "{}", line.trim_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_numbers_right() {
        let mut columns = Columns::new(["case", ">median µs", "bound"]);
        columns.row(["softmax", "1.25", "memory"]);
        columns.row(["a long name", "1000.00"]);
        let expected = "case         median µs  bound\nsoftmax           1.25  memory\na long name    1000.00\n";
        assert_eq!(columns.to_string(), expected);
    }
}
