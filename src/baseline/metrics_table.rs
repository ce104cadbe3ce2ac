//! The text of accepted counts: under each shape a row a metric, counts exact.

use super::store::Document;
use crate::check::outcome::Metric;

/// The first line; the number is the version of the format.
const TITLE: &str = "kernelgate metrics 2";

/// The third line.
const HEADER: &str = "metric                                   |          count | relative";

/// The first line of the version before, whose rows began with their shape, and its third one. It is read, not written.
const TITLE_1: &str = "kernelgate metrics 1";
const HEADER_1: &str = "shape | metric | count | relative";

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
        let mut lines = vec![TITLE.to_owned(), self.made_by.clone(), HEADER.to_owned()];
        let mut above = None;
        for Metric { shape, name, value, relative, .. } in &self.rows {
            if above.replace(shape) != Some(shape) {
                lines.push(shape.clone());
            }
            lines.push(format!("  {name:<38} | {value:>14} | {}", relative.as_deref().unwrap_or("-")));
        }
        lines.join("\n")
    }

    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut lines = text.trim_end().lines().zip(1..);
        let mut next = |what: &str| lines.next().ok_or((1, format!("expected {what}, found the end of the text")));
        let (title, at) = next("the title")?;
        let (has_shape_lines, columns) = match title.trim_end() {
            TITLE => (true, HEADER),
            TITLE_1 => (false, HEADER_1),
            _ => return Err((at, format!("expected `{TITLE}`, found `{title}`"))),
        };
        let (made_by, _) = next("the compiler")?;
        let (header, at) = next("the names of the columns")?;
        if !header.split_whitespace().eq(columns.split_whitespace()) {
            return Err((at, format!("expected the names of the columns, found `{header}`")));
        }
        let mut table = MetricsTable { made_by: made_by.trim_end().into(), rows: Vec::new() };
        let mut above = None;
        for (line, at) in lines {
            if has_shape_lines && !line.starts_with(' ') {
                above = Some(line.trim_end());
                continue;
            }
            let mut cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if has_shape_lines {
                cells.insert(0, above.ok_or_else(|| (at, format!("expected a shape, found `{line}`")))?);
            }
            let [shape, name, value, relative] = cells[..] else {
                let expected = columns.split('|').count();
                let found = line.split('|').count();
                return Err((at, format!("expected {expected} columns, found {found} in `{line}`")));
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

    const TABLE: &str = "kernelgate metrics 2
NVRTC 13.0, compute_90a
metric                                   |          count | relative
n=1
  instructions                           |             12 | 3.0000 an element
  barrier arrivals                       |              7 | -
n=2
  instructions                           |             24 | 3.0000 an element";

    const TABLE_1: &str = "kernelgate metrics 1
NVRTC 13.0, compute_90a
shape                            | metric                                 |          count | relative
n=1                              | instructions                           |             12 | 3.0000 an element
n=1                              | barrier arrivals                       |              7 | -
n=2                              | instructions                           |             24 | 3.0000 an element";

    #[test]
    fn a_table_round_trips() {
        let table = MetricsTable::parse(TABLE).unwrap();
        assert_eq!(table.count("n=1", "barrier arrivals"), 7);
        assert_eq!(table.count("n=1", "idle lanes"), 0);
        assert_eq!(table.text(), TABLE);
    }

    #[test]
    fn the_version_before_is_read_and_written_as_this_one() {
        assert_eq!(MetricsTable::parse(TABLE_1).unwrap().text(), TABLE);
    }

    #[rstest]
    #[case("", 1, "the title")]
    #[case("kernelgate perf 1\n", 1, "kernelgate metrics 2")]
    #[case("kernelgate metrics 2\nNVRTC 13.0\nshape | metric | count | relative\n", 3, "the names of the columns")]
    #[case("kernelgate metrics 2\nNVRTC 13.0\nmetric | count | relative\nn=1", 4, "a row a metric")]
    #[case("kernelgate metrics 2\nNVRTC 13.0\nmetric | count | relative\n  a | 1 | -", 4, "expected a shape")]
    #[case("kernelgate metrics 2\nNVRTC 13.0\nmetric | count | relative\nn=1\n  a | 1", 5, "3 columns, found 2")]
    #[case("kernelgate metrics 2\nNVRTC 13.0\nmetric | count | relative\nn=1\n  a | 1.5 | -", 5, "no count")]
    #[case("kernelgate metrics 2\nx\nmetric | count | relative\nn=1\n a | 1 | -\n a | 2 | -", 6, "a second row")]
    #[case("kernelgate metrics 1\nNVRTC 13.0\nshape | metric | count | relative\n", 4, "a row a metric")]
    #[case("kernelgate metrics 1\nNVRTC 13.0\nshape | metric | count | relative\nn=1 | a | 1", 4, "4 columns, found 3")]
    fn what_is_no_table_is_told_by_line(#[case] text: &str, #[case] line: usize, #[case] part: &str) {
        let (at, what) = MetricsTable::parse(text).unwrap_err();
        assert!(at == line && what.contains(part), "{at}: {what}");
    }
}
