//! The text of accepted counts: a table, a row a metric and shape, counts exact.

use super::store::Document;
use crate::check::outcome::Metric;

/// The first line; the number is the version of the format.
const TITLE: &str = "kernelgate metrics 1";

/// The third line.
const HEADER: &str =
    "shape                            | metric                                 |          count | relative";

/// The accepted counts of one candidate in one dtype.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsTable {
    /// What made the code, and for which architecture: the second line.
    pub made_by: String,
    /// The rows in the order of the file.
    pub rows: Vec<Metric>,
}

impl MetricsTable {
    /// The rows of a shape.
    pub fn of_shape<'a>(&'a self, shape: &'a str) -> impl Iterator<Item = &'a Metric> {
        self.rows.iter().filter(move |row| row.shape == shape)
    }

    /// The count of a metric at a shape; what has no row is zero.
    pub fn count(&self, shape: &str, name: &str) -> u64 {
        self.of_shape(shape).find(|row| row.name == name).map_or(0, |row| row.value)
    }
}

impl Document for MetricsTable {
    fn text(&self) -> String {
        let row = |row: &Metric| {
            let Metric { shape, name, value, relative, .. } = row;
            format!("{shape:<32} | {name:<38} | {value:>14} | {}", relative.as_deref().unwrap_or("-"))
        };
        let head = [TITLE.to_owned(), self.made_by.clone(), HEADER.to_owned()];
        head.into_iter().chain(self.rows.iter().map(row)).collect::<Vec<_>>().join("\n")
    }

    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut lines = text.trim_end().lines().zip(1..);
        let mut next = |what: &str| lines.next().ok_or((1, format!("expected {what}, found the end of the text")));
        let (title, at) = next("the title")?;
        if title.trim_end() != TITLE {
            return Err((at, format!("expected `{TITLE}`, found `{title}`")));
        }
        let (made_by, _) = next("the compiler")?;
        let (header, at) = next("the names of the columns")?;
        if !header.split_whitespace().eq(HEADER.split_whitespace()) {
            return Err((at, format!("expected the names of the columns, found `{header}`")));
        }
        let mut table = MetricsTable { made_by: made_by.trim_end().into(), rows: Vec::new() };
        for (line, at) in lines {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [shape, name, value, relative] = cells[..] else {
                return Err((at, format!("expected 4 columns, found {} in `{line}`", cells.len())));
            };
            let value = value.parse().map_err(|_| (at, format!("`{value}` is no count in `{line}`")))?;
            if table.of_shape(shape).any(|row| row.name == name) {
                return Err((at, format!("a second row for `{name}` at `{shape}`")));
            }
            let relative = (relative != "-").then(|| relative.to_owned());
            table.rows.push(Metric { shape: shape.into(), name: name.into(), value, relative, accepted: None });
        }
        if table.rows.is_empty() { Err((4, "expected a row a metric, found none".into())) } else { Ok(table) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const TABLE: &str = "kernelgate metrics 1\nNVRTC 13.0, compute_90a\nshape | metric | count | relative\n\
                         n=1 | instructions | 12 | 3.0000 an element\nn=1 | barrier arrivals | 7 | -";

    #[test]
    fn a_table_round_trips() {
        let table = MetricsTable::parse(TABLE).unwrap();
        assert_eq!(table.count("n=1", "barrier arrivals"), 7);
        assert_eq!(table.count("n=1", "idle lanes"), 0);
        assert_eq!(MetricsTable::parse(&table.text()), Ok(table));
    }

    #[rstest]
    #[case("", 1, "the title")]
    #[case("kernelgate perf 1\n", 1, "kernelgate metrics 1")]
    #[case("kernelgate metrics 1\nNVRTC 13.0\nshape | metric | count | relative\n", 4, "a row a metric")]
    #[case("kernelgate metrics 1\nNVRTC 13.0\nshape | metric | count | relative\nn=1 | a | 1", 4, "4 columns")]
    #[case("kernelgate metrics 1\nNVRTC 13.0\nshape | metric | count | relative\nn=1 | a | 1.5 | -", 4, "no count")]
    #[case(
        "kernelgate metrics 1\nx\nshape | metric | count | relative\nn=1 | a | 1 | -\nn=1 | a | 2 | -",
        5,
        "a second row"
    )]
    fn what_is_no_table_is_told_by_line(#[case] text: &str, #[case] line: usize, #[case] part: &str) {
        let (at, what) = MetricsTable::parse(text).unwrap_err();
        assert!(at == line && what.contains(part), "{at}: {what}");
    }
}
