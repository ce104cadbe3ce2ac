//! Points and lines over two logarithmic axes: rooflines, and times over an extent.

use super::canvas::{INK, LINE, MOST_SERIES, PAPER, SOFT, finish, series_colour, text, width};
use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::prelude::{
    ChartBuilder, Circle, Color as _, DashedLineSeries, EmptyElement, IntoDrawingArea as _, IntoLogRange as _,
    LineSeries, RGBColor, Rectangle, SVGBackend, Text, TriangleMarker,
};
use plotters::style::text_anchor::HPos;

const WIDTH: i32 = 860;
const HEIGHT: i32 = 520;
const FONT: u32 = 12;

/// The form of a point: what lies under points of another colour is still seen by its corners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    Circle,
    Triangle,
    Square,
}

impl Mark {
    const ALL: [Mark; 3] = [Mark::Circle, Mark::Triangle, Mark::Square];
}

/// One point of a series.
#[derive(Clone, Debug)]
pub struct Point {
    pub series: String,
    pub mark: Mark,
    pub x: f64,
    pub y: f64,
}

/// A roof of a device: a slope, and what it ends in.
#[derive(Clone, Debug, PartialEq)]
pub struct Roof {
    /// What stands at its right end.
    pub name: String,
    /// Of y over x: GB/s.
    pub slope: f64,
    /// Gflop/s.
    pub flat: Option<f64>,
}

impl Roof {
    fn at(&self, x: f64) -> f64 {
        (self.slope * x).min(self.flat.unwrap_or(f64::INFINITY))
    }
}

/// All of it.
pub struct Plane {
    pub title: String,
    pub origin: String,
    pub x: String,
    pub y: String,
    pub points: Vec<Point>,
    /// Whether the points of a series are joined.
    pub joined: bool,
    pub roofs: Vec<Roof>,
    /// What marks mean, where a series has several.
    pub marks: Vec<(Mark, String)>,
}

impl Plane {
    /// The SVG text.
    ///
    /// # Errors
    /// If there is nothing to draw, or too much.
    pub fn svg(&self) -> Result<String, String> {
        let mut names: Vec<&str> = self.points.iter().map(|point| point.series.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return Err("the summary holds nothing to plot of this kind".into());
        }
        if names.len() > MOST_SERIES {
            let n = names.len();
            return Err(format!("{n} series cannot be told apart: choose with --operator, --candidate and --dtype"));
        }
        let mut svg = String::new();
        self.draw(&mut svg, &names).map_err(|e| format!("cannot draw: {e}"))?;
        Ok(finish(&svg, &self.title))
    }

    /// The mark of a series in the legend: its own, or a circle for its colour where it has several.
    fn mark_of(&self, series: &str) -> Mark {
        let mut marks = self.points.iter().filter(|point| point.series == series).map(|point| point.mark);
        let first = marks.next().unwrap_or(Mark::Circle);
        if marks.all(|mark| mark == first) { first } else { Mark::Circle }
    }

    fn draw(&self, svg: &mut String, names: &[&str]) -> Result<(), String> {
        let root = SVGBackend::with_string(svg, (WIDTH as u32, HEIGHT as u32)).into_drawing_area();
        let fail = |e: &dyn std::fmt::Display| e.to_string();
        root.fill(&PAPER).map_err(|e| fail(&e))?;
        let write = |words: &str, at: (i32, i32), style| {
            root.draw(&Text::new(words.to_owned(), at, style)).map_err(|e| fail(&e))
        };
        write(&self.title, (20, 24), text(17, INK, HPos::Left))?;
        write(&self.origin, (20, 47), text(FONT, SOFT, HPos::Left))?;
        let (mut x, mut y) = (20, 72);
        let series = names.iter().enumerate().map(|(i, name)| (*name, self.mark_of(name), series_colour(i)));
        for (name, mark, colour) in series.chain(self.marks.iter().map(|(mark, name)| (name.as_str(), *mark, SOFT))) {
            let wide = 26 + width(name, FONT);
            if x > 20 && x + wide > WIDTH - 20 {
                (x, y) = (20, y + 19);
            }
            key(&root, (x + 5, y), mark, colour)?;
            write(name, (x + 15, y), text(FONT, SOFT, HPos::Left))?;
            x += wide;
        }
        let (_, area) = root.split_vertically(y + 12);
        let xs = range(self.points.iter().map(|point| point.x));
        let roofs = self.roofs.iter().flat_map(|roof| [roof.at(xs.0), roof.at(xs.1)]);
        let ys = range(self.points.iter().map(|point| point.y).chain(roofs));
        let mut chart = ChartBuilder::on(&area)
            .margin_left(16)
            .margin_right(28)
            .margin_bottom(10)
            .x_label_area_size(46)
            .y_label_area_size(64)
            .build_cartesian_2d((xs.0..xs.1).log_scale(), (ys.0..ys.1).log_scale())
            .map_err(|e| fail(&e))?;
        chart
            .configure_mesh()
            .axis_style(LINE)
            .bold_line_style(LINE)
            .light_line_style(PAPER)
            .max_light_lines(0)
            .label_style(text(FONT, SOFT, HPos::Center))
            .axis_desc_style(text(FONT, SOFT, HPos::Center))
            .x_desc(self.x.as_str())
            .y_desc(self.y.as_str())
            .x_label_formatter(&|x| number(*x))
            .y_label_formatter(&|y| number(*y))
            .draw()
            .map_err(|e| fail(&e))?;
        for roof in &self.roofs {
            let line = (0..=60).map(|i| xs.0 * (xs.1 / xs.0).powf(f64::from(i) / 60.0)).map(|x| (x, roof.at(x)));
            let dashes = DashedLineSeries::new(line, 6, 4, SOFT.stroke_width(2));
            chart.draw_series(dashes).map_err(|e| fail(&e))?;
            let end = chart.backend_coord(&(xs.1, roof.at(xs.1)));
            write(&roof.name, (end.0 - 6, end.1 - 9), text(FONT, SOFT, HPos::Right))?;
        }
        for (i, name) in names.iter().enumerate() {
            let colour = series_colour(i);
            let mut of: Vec<&Point> = self.points.iter().filter(|p| p.series == *name).collect();
            of.sort_by(|a, b| a.x.total_cmp(&b.x));
            if self.joined {
                let line = of.iter().map(|point| (point.x, point.y));
                chart.draw_series(LineSeries::new(line, colour.stroke_width(2))).map_err(|e| fail(&e))?;
            }
            for mark in Mark::ALL {
                let at = of.iter().filter(|point| point.mark == mark).map(|point| (point.x, point.y));
                let style = colour.filled();
                match mark {
                    Mark::Circle => chart.draw_series(at.map(|at| Circle::new(at, 4, style))),
                    Mark::Triangle => chart.draw_series(at.map(|at| TriangleMarker::new(at, 5, style))),
                    Mark::Square => {
                        chart.draw_series(at.map(|at| EmptyElement::at(at) + Rectangle::new([(-3, -3), (4, 4)], style)))
                    }
                }
                .map_err(|e| fail(&e))?;
            }
        }
        root.present().map_err(|e| fail(&e))
    }
}

/// A power of ten as an exponent stands above a line.
fn raised(exponent: i32) -> String {
    let digit = |c: char| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        c => c.to_digit(10).and_then(|n| char::from_u32('⁰' as u32 + n)).unwrap_or(c),
    };
    exponent.to_string().chars().map(digit).collect()
}

/// A mark of the legend.
fn key(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    (x, y): (i32, i32),
    mark: Mark,
    colour: RGBColor,
) -> Result<(), String> {
    let drawn = match mark {
        Mark::Circle => root.draw(&Circle::new((x, y), 4, colour.filled())),
        Mark::Triangle => root.draw(&TriangleMarker::new((x, y), 5, colour.filled())),
        Mark::Square => root.draw(&Rectangle::new([(x - 3, y - 3), (x + 4, y + 4)], colour.filled())),
    };
    drawn.map_err(|e| e.to_string())
}

/// From somewhat below the least to somewhat above the most; what lies close together gets whole decades, so that the
/// axis has ticks.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), x| (low.min(x), high.max(x)));
    let (low, high) = (low / 1.3, high * 1.3);
    if high / low > 100.0 {
        return (low, high);
    }
    let decade = |x: f64, round: fn(f64) -> f64| 10f64.powf(round(x.log10()));
    (decade(low, f64::floor), decade(high, f64::ceil))
}

/// A tick of a logarithmic axis: a power of ten, in one form on both of them; between two of them only the 2 and the 5
/// have room.
fn number(x: f64) -> String {
    let exponent = (x.log10() + 1e-9).floor();
    let power = format!("10{}", raised(exponent as i32));
    match (x / 10f64.powf(exponent)).round() as u32 {
        1 => power,
        first @ (2 | 5) => format!("{first}·{power}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roof_is_flat_at_its_end() {
        let roof = Roof { name: String::new(), slope: 4000.0, flat: Some(60_000.0) };
        assert_eq!([1.0, 100.0].map(|x| roof.at(x)), [4000.0, 60_000.0]);
    }

    #[test]
    fn an_axis_has_room_and_ticks() {
        assert_eq!(range([2.0, 5.0].into_iter()), (1.0, 10.0));
        assert_eq!(range([20.0, 50.0].into_iter()), (10.0, 100.0));
        let (low, high) = range([1.0, 1000.0].into_iter());
        assert!(low < 1.0 && low > 0.5 && high > 1000.0 && high < 2000.0, "{low} {high}");
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!([0.1, 1.0, 100.0, 1e6].map(number), ["10⁻¹", "10⁰", "10²", "10⁶"]);
        assert_eq!([20.0, 30.0, 500.0, 1000.0].map(number), ["2·10¹", "", "5·10²", "10³"]);
    }

    #[test]
    fn a_key_is_as_large_as_the_mark_that_it_explains() {
        let points = [1.0, 2.0].map(|x| Point { series: "a".into(), mark: Mark::Square, x, y: x });
        let plane = Plane {
            title: String::new(),
            origin: String::new(),
            x: "x".into(),
            y: "y".into(),
            points: points.into(),
            joined: false,
            roofs: Vec::new(),
            marks: Vec::new(),
        };
        let svg = plane.svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        // Behind the ground.
        let squares = document.descendants().filter(|node| node.tag_name().name() == "rect").skip(1);
        let sizes: Vec<_> = squares.map(|square| (square.attribute("width"), square.attribute("height"))).collect();
        assert_eq!(sizes, [(Some("7"), Some("7")); 3]);
    }
}
