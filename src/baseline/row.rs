//! The text of a baseline: a small table, a row a shape. Rows are written and kept one by one, so that a diff shows
//! only the shapes that changed.

use super::store::Document;
use crate::check::outcome::Timing;
use crate::device::Heat;
use crate::toolchain::code::DIGITS as CODE_DIGITS;

/// The first line; the number is the version of the format.
const TITLE: &str = "kernelgate perf 1";

/// The second line.
const HEADER: &str = "shape                            | heat |  median us |  +- % | ceiling % |   yardstick us |        epoch us | code";

/// The accepted times of one candidate in one dtype on one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The rows in the order of the file.
    pub rows: Vec<Row>,
}

/// The accepted time of one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The shape.
    pub shape: String,
    /// Caches cold or hot.
    pub heat: Heat,
    /// Median time a launch, µs.
    pub median_us: f64,
    /// Half the 95 % interval of the median, as a share of it.
    pub half_width: f64,
    /// Floor over median, where a floor was known.
    pub of_ceiling: Option<f64>,
    /// The yardstick of its session.
    pub yardstick: Option<Yardstick>,
    /// The pinned time that slow creep is measured from: the median, and the yardstick beside it.
    pub epoch_us: (f64, Option<f64>),
    /// The hash of the machine code and the launches that took this time, where it was known.
    pub code: Option<String>,
    /// The line as it stands in the file; empty for a new row.
    text: String,
}

/// The time of a yardstick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yardstick {
    /// Median time, µs.
    pub us: f64,
    /// Which one.
    pub unit: Unit,
}

/// The yardsticks that a time can be held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A copy of the same bytes.
    Copy,
    /// A kernel that only reads the same bytes.
    Read,
    /// Multiply-adds in registers.
    Fma,
}

impl Unit {
    /// All of them.
    const ALL: [Unit; 3] = [Unit::Copy, Unit::Read, Unit::Fma];

    /// `copy`, `read` or `fma`.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Copy => "copy",
            Unit::Read => "read",
            Unit::Fma => "fma",
        }
    }
}

/// The yardstick that limits a case: whichever takes longer.
pub fn yardstick_of(timing: &Timing) -> Option<Yardstick> {
    let of = |us: Option<f64>, unit| us.map(|us| Yardstick { us, unit });
    let memory = of(timing.read_us, Unit::Read).or(of(timing.copy_us, Unit::Copy));
    match (memory, of(timing.fma_us, Unit::Fma)) {
        (Some(memory), Some(fma)) if fma.us > memory.us => Some(fma),
        (memory, fma) => memory.or(fma),
    }
}

/// Half the interval of a timing as a share of its median.
pub fn half_width_of(timing: &Timing) -> f64 {
    (timing.high_us - timing.low_us) / (2.0 * timing.median_us)
}

impl Row {
    /// The row that would be accepted for a timing; its epoch begins here unless an older one is carried on.
    pub fn of(timing: &Timing, epoch_us: Option<(f64, Option<f64>)>) -> Self {
        let yardstick = yardstick_of(timing);
        let mut row = Row {
            shape: timing.shape.clone(),
            heat: timing.heat,
            median_us: timing.median_us,
            half_width: half_width_of(timing),
            of_ceiling: timing.of_ceiling,
            yardstick,
            epoch_us: epoch_us.unwrap_or((timing.median_us, yardstick.map(|y| y.us))),
            code: timing.code.clone(),
            text: String::new(),
        };
        row.text = row.write();
        row
    }

    /// The epoch, for a row that takes this one's place: a yardstick of another kind measures nothing of it.
    pub fn epoch_for(&self, timing: &Timing) -> (f64, Option<f64>) {
        let is_other = self.has_other_yardstick(timing);
        (self.epoch_us.0, self.epoch_us.1.filter(|_| !is_other))
    }

    /// Whether this row and the timing have yardsticks of different kinds.
    pub fn has_other_yardstick(&self, timing: &Timing) -> bool {
        self.yardstick.zip(yardstick_of(timing)).is_some_and(|(then, now)| then.unit != now.unit)
    }

    /// `cold` or `hot`.
    pub fn heat_name(&self) -> &'static str {
        heat_name(self.heat).trim_end()
    }

    /// The same row, now that the code is known which takes this time.
    pub fn with_code(&self, code: &str) -> Self {
        let mut row = Row { code: Some(code.into()), ..self.clone() };
        row.text = row.write();
        row
    }

    fn write(&self) -> String {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let yardstick = self.yardstick.map(|y| format!("{} {}", figures(y.us), y.unit.name()));
        let epoch_yardstick = self.epoch_us.1.map(figures);
        format!(
            "{:<32} | {} | {:>10} | {:>5.2} | {:>9} | {:>14} | {:>15} | {}",
            self.shape,
            heat_name(self.heat),
            figures(self.median_us),
            100.0 * self.half_width,
            or_dash(self.of_ceiling.map(|share| format!("{:.1}", 100.0 * share))),
            or_dash(yardstick),
            format!("{}/{}", figures(self.epoch_us.0), or_dash(epoch_yardstick)),
            or_dash(self.code.clone()),
        )
    }

    fn parse(line: &str) -> Result<Self, String> {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [shape, heat, median, half_width, of_ceiling, yardstick, epoch, code] = cells[..] else {
            return Err(format!("expected 8 columns, found {}", cells.len()));
        };
        if shape.is_empty() {
            return Err("expected a shape, found nothing".into());
        }
        let heat = [Heat::Cold, Heat::Hot].into_iter().find(|&h| heat_name(h).trim() == heat);
        let (epoch, epoch_yardstick) = epoch.split_once('/').ok_or("expected `median/yardstick` as epoch")?;
        let row = Row {
            shape: shape.into(),
            heat: heat.ok_or("expected `cold` or `hot` as heat")?,
            median_us: time("median", median)?,
            half_width: number("half width", half_width)? / 100.0,
            of_ceiling: or_dash(of_ceiling, |text| Ok(number("ceiling", text)? / 100.0))?,
            yardstick: or_dash(yardstick, parse_yardstick)?,
            epoch_us: (time("epoch", epoch)?, or_dash(epoch_yardstick, |text| time("epoch", text))?),
            code: or_dash(code, parse_code)?,
            text: line.trim_end().into(),
        };
        row.is_consistent().map(|()| row)
    }

    /// Whether the numbers of a row can all be true at once.
    fn is_consistent(&self) -> Result<(), String> {
        if self.half_width > MOST_HALF_WIDTH {
            return Err(format!(
                "an interval of ±{:.4} % is none to compare with (at most {} %)",
                100.0 * self.half_width,
                100.0 * MOST_HALF_WIDTH
            ));
        }
        let epoch = self.epoch_us.0 / self.median_us;
        if !(1.0 / MOST_CREEP..=MOST_CREEP).contains(&epoch) {
            return Err(format!("the epoch and the median are {epoch:.3} times apart (at most {MOST_CREEP})"));
        }
        let Some(Yardstick { us, unit }) = self.yardstick else { return Ok(()) };
        if let Some(then_us) = self.epoch_us.1
            && !(1.0 / MOST_CREEP..=MOST_CREEP).contains(&(then_us / us))
        {
            return Err(format!("the yardsticks of epoch and median are {:.3} times apart", then_us / us));
        }
        // Multiply-adds are no ceiling for tensor cores: the ceiling of such a row is another, lower yardstick.
        let (most, least) = (us / self.median_us, if unit == Unit::Fma { 0.0 } else { us / self.median_us });
        match self.of_ceiling {
            Some(share) if share > most + CEILING_STEP || share < least - CEILING_STEP => Err(format!(
                "{:.1} % of the ceiling is not {} over {} ({:.1} %)",
                100.0 * share,
                figures(us),
                figures(self.median_us),
                100.0 * most
            )),
            _ => Ok(()),
        }
    }
}

/// The widest interval that makes a baseline: with a wider one no change would ever be seen.
pub const MOST_HALF_WIDTH: f64 = 0.25;

/// Median and epoch differ by creep at the most: what changes by more begins a new epoch.
const MOST_CREEP: f64 = 4.0;

/// The share of a ceiling is written with one decimal of a per cent, and the times that it comes from with five figures.
const CEILING_STEP: f64 = 0.001;

/// A launch takes no longer than this, µs: it would be ended before.
const MOST_US: f64 = 1e8;

impl Table {
    /// The row of a shape.
    pub fn row(&self, shape: &str, heat: Heat) -> Option<&Row> {
        self.rows.iter().find(|row| row.shape == shape && row.heat == heat)
    }
}

impl Document for Table {
    /// Rows that were read keep their line.
    fn text(&self) -> String {
        let lines = [TITLE, HEADER].into_iter().chain(self.rows.iter().map(|row| row.text.as_str()));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut lines = text.trim_end().lines().enumerate();
        let mut expect = |expected: &str| match lines.next() {
            Some((_, line)) if words(line) == words(expected) => Ok(()),
            Some((at, line)) => Err((at + 1, format!("expected `{}`, found `{line}`", words(expected)))),
            None => Err((1, format!("expected `{}`, found the end of the text", words(expected)))),
        };
        expect(TITLE)?;
        expect(HEADER)?;
        let mut table = Table::default();
        for (at, line) in lines {
            let row = Row::parse(line).map_err(|what| (at + 1, format!("{what} in `{line}`")))?;
            if table.row(&row.shape, row.heat).is_some() {
                return Err((at + 1, format!("a second row for `{}`", row.shape)));
            }
            table.rows.push(row);
        }
        if table.rows.is_empty() {
            return Err((3, "expected a row a shape, found none".into()));
        }
        Ok(table)
    }
}

const fn heat_name(heat: Heat) -> &'static str {
    match heat {
        Heat::Cold => "cold",
        Heat::Hot => "hot ",
    }
}

fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Five significant figures: ten times finer than the precision of a median.
fn figures(value: f64) -> String {
    let magnitude = value.abs().max(f64::MIN_POSITIVE).log10().floor();
    let decimals = (4.0 - magnitude).clamp(0.0, 5.0) as usize;
    format!("{value:.decimals$}")
}

fn number(what: &str, text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("`{text}` is not a number as {what}"))?;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(format!("`{text}` makes no sense as {what}")) }
}

fn time(what: &str, text: &str) -> Result<f64, String> {
    let us = number(what, text)?;
    if us > 0.0 && us <= MOST_US {
        Ok(us)
    } else {
        Err(format!("`{text}` makes no sense as {what}: a time is more than 0 and at most {MOST_US:e} µs"))
    }
}

fn parse_yardstick(text: &str) -> Result<Yardstick, String> {
    let (us, name) = text.split_once(' ').ok_or_else(|| format!("expected `time unit`, found `{text}`"))?;
    let unit = Unit::ALL.into_iter().find(|unit| unit.name() == name);
    Ok(Yardstick {
        us: time("yardstick", us)?,
        unit: unit.ok_or_else(|| format!("`{name}` is no yardstick; expected copy, read or fma"))?,
    })
}

fn parse_code(text: &str) -> Result<String, String> {
    let is_hash = text.len() == CODE_DIGITS && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    if is_hash {
        Ok(text.into())
    } else {
        Err(format!("`{text}` is no code: expected {CODE_DIGITS} hexadecimal digits"))
    }
}

fn or_dash<T>(text: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == "-" { Ok(None) } else { parse(text).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const TEXT: &str = "\
kernelgate perf 1
shape                            | heat |  median us |  +- % | ceiling % |   yardstick us |        epoch us | code
n=1048576                        | cold |     3.8512 |  0.12 |      97.4 |    3.7511 copy |   3.9000/3.7500 | 0123456789ab
m=1024,n=1024,k=1024             | hot  |     67.120 |  0.30 |      51.0 |     34.231 fma |        67.120/- | -
n=7                              | cold |     2.0100 |  0.45 |         - |              - |        2.0100/- | -";

    #[test]
    fn a_table_round_trips_to_the_byte() {
        let table = Table::parse(TEXT).unwrap();
        assert_eq!(table.text(), TEXT);
        let row = table.row("n=1048576", Heat::Cold).unwrap();
        assert_eq!((row.median_us, row.yardstick), (3.8512, Some(Yardstick { us: 3.7511, unit: Unit::Copy })));
        assert_eq!(row.epoch_us, (3.9, Some(3.75)));
        assert!(table.rows.iter().all(|row| row.write() == row.text), "writing again gives the same text");
    }

    #[test]
    fn spacing_is_of_no_account_when_reading() {
        let narrow = TEXT.lines().map(words).collect::<Vec<_>>().join("\n");
        let table = Table::parse(&narrow).unwrap();
        assert_eq!(table.rows.len(), 3);
        assert_eq!(table.text().lines().nth(2), narrow.lines().nth(2), "but kept when writing");
    }

    #[rstest]
    #[case::empty("", 1, "end of the text")]
    #[case::other_version("kernelgate perf 2\n", 1, "kernelgate perf 1")]
    #[case::no_rows(
        "kernelgate perf 1\nshape | heat | median us | +- % | ceiling % | yardstick us | epoch us | code",
        3,
        "none"
    )]
    #[case::merge_conflict("<<<<<<< HEAD\nkernelgate perf 1", 1, "<<<<<<< HEAD")]
    fn a_bad_table_is_refused(#[case] text: &str, #[case] line: usize, #[case] part: &str) {
        let (at, what) = Table::parse(text).unwrap_err();
        assert!(at == line && what.contains(part), "{at}: {what}");
    }

    #[rstest]
    #[case::truncated("n=1 | cold | 3.8", "8 columns")]
    #[case::no_number("n=1 | cold | fast | 0.1 | - | - | 1/- | -", "`fast`")]
    #[case::nan("n=1 | cold | NaN | 0.1 | - | - | 1/- | -", "median")]
    #[case::zero("n=1 | cold | 0 | 0.1 | - | - | 1/- | -", "more than 0")]
    #[case::heat("n=1 | warm | 1 | 0.1 | - | - | 1/- | -", "cold")]
    #[case::unit("n=1 | cold | 1 | 0.1 | - | 3 mile | 1/- | -", "mile")]
    #[case::epoch("n=1 | cold | 1 | 0.1 | - | - | 1 | -", "epoch")]
    #[case::endless("n=1 | cold | 1e300 | 0.1 | - | - | 1e300/- | -", "at most")]
    #[case::wide("n=1 | cold | 1 | 100 | - | - | 1/- | -", "none to compare with")]
    #[case::negative("n=1 | cold | 1 | -1 | - | - | 1/- | -", "half width")]
    #[case::yardstick_50_times_off("n=1 | cold | 10 | 0.1 | 90.0 | 450 copy | 10/450 | -", "of the ceiling")]
    #[case::yardstick_of_the_epoch("n=1 | cold | 10 | 0.1 | 90.0 | 9.0 copy | 10/450 | -", "yardsticks of epoch")]
    #[case::median_of_another_row("n=1 | cold | 100 | 0.1 | 90.0 | 9.0 copy | 100/9.0 | -", "of the ceiling")]
    #[case::ceiling_above_the_fma("n=1 | cold | 10 | 0.1 | 95.0 | 9.0 fma | 10/9.0 | -", "of the ceiling")]
    #[case::epoch_of_another_row("n=1 | cold | 1 | 0.1 | - | - | 9/- | -", "the epoch")]
    #[case::code("n=1 | cold | 1 | 0.1 | - | - | 1/- | 0123456789aX", "hexadecimal")]
    #[case::no_shape(" | cold | 1 | 0.1 | - | - | 1/- | -", "a shape")]
    #[case::twice("n=7 | cold | 1 | 0.1 | - | - | 1/- | -", "second row")]
    fn a_bad_row_is_refused(#[case] row: &str, #[case] part: &str) {
        let (at, what) = Table::parse(&format!("{TEXT}\n{row}")).unwrap_err();
        assert!(at == 6 && what.contains(part), "{at}: {what}");
    }

    #[rstest]
    #[case(2.01234567, "2.0123")]
    #[case(67.12, "67.120")]
    #[case(123456.7, "123457")]
    #[case(0.05, "0.05000")]
    fn figures_are_five(#[case] value: f64, #[case] expected: &str) {
        assert_eq!(figures(value), expected);
    }
}
