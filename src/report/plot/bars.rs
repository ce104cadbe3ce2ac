//! Horizontal bars under headings, each with its name and its value in text.

use super::canvas::{INK, LINE, PAPER, SOFT, finish, text, width};
use plotters::prelude::{Color as _, IntoDrawingArea as _, PathElement, RGBColor, Rectangle, SVGBackend, Text};
use plotters::style::text_anchor::HPos;

/// More than this nobody reads.
const MOST: usize = 80;

const WIDTH: i32 = 860;
const TOP: i32 = 74;
const ROW: i32 = 19;
const HEADING: i32 = 24;
const FONT: u32 = 12;
/// Where bars end at the latest, so that their values fit.
const RIGHT: i32 = WIDTH - 84;

/// One bar.
pub struct Bar {
    /// What stands above it, if a group begins here.
    pub heading: Option<String>,
    /// Its name.
    pub label: String,
    /// Its length.
    pub value: f64,
    /// The value, as it is shown.
    pub text: String,
    /// Its colour.
    pub colour: RGBColor,
}

/// All of them.
pub struct Bars {
    pub title: String,
    pub origin: String,
    pub bars: Vec<Bar>,
    /// A value that is marked by a line.
    pub reference: Option<f64>,
    /// What colours mean.
    pub legend: Vec<(String, RGBColor)>,
}

impl Bars {
    /// The SVG text.
    ///
    /// # Errors
    /// If there is nothing to draw, or too much.
    pub fn svg(&self) -> Result<String, String> {
        if self.bars.is_empty() {
            return Err("the summary holds nothing to plot of this kind".into());
        }
        if self.bars.len() > MOST {
            let n = self.bars.len();
            return Err(format!("{n} bars are too many to read: choose with --operator, --candidate and --dtype"));
        }
        let headings = self.bars.iter().filter(|bar| bar.heading.is_some()).count();
        let height = TOP + self.bars.len() as i32 * ROW + headings as i32 * HEADING + 16;
        let mut svg = String::new();
        self.draw(&mut svg, height).map_err(|e| format!("cannot draw: {e}"))?;
        Ok(finish(&svg, &self.title))
    }

    fn draw(&self, svg: &mut String, height: i32) -> Result<(), String> {
        let root = SVGBackend::with_string(svg, (WIDTH as u32, height as u32)).into_drawing_area();
        let fail = |e: &dyn std::fmt::Display| e.to_string();
        root.fill(&PAPER).map_err(|e| fail(&e))?;
        let write = |words: &str, at: (i32, i32), style| {
            root.draw(&Text::new(words.to_owned(), at, style)).map_err(|e| fail(&e))
        };
        write(&self.title, (20, 24), text(17, INK, HPos::Left))?;
        write(&self.origin, (20, 47), text(FONT, SOFT, HPos::Left))?;
        let mut x = WIDTH - 20;
        for (name, colour) in self.legend.iter().rev() {
            x -= width(name, FONT);
            write(name, (x, 24), text(FONT, SOFT, HPos::Left))?;
            x -= 16;
            root.draw(&Rectangle::new([(x, 19), (x + 10, 29)], colour.filled())).map_err(|e| fail(&e))?;
            x -= 14;
        }
        let left = 20 + self.bars.iter().map(|bar| width(&bar.label, FONT)).max().unwrap_or(0).clamp(40, 330) + 10;
        let longest = self.bars.iter().map(|bar| bar.value).chain(self.reference).fold(0.0, f64::max);
        let at = |value: f64| left + (value / longest * f64::from(RIGHT - left)).round() as i32;
        let mut y = TOP;
        let mut marks = Vec::new();
        for bar in &self.bars {
            if let Some(heading) = &bar.heading {
                y += HEADING;
                write(heading, (20, y - 10), text(FONT + 1, INK, HPos::Left))?;
            }
            write(&bar.label, (left - 8, y + ROW / 2), text(FONT, SOFT, HPos::Right))?;
            let end = at(bar.value).max(left + 1);
            root.draw(&Rectangle::new([(left, y + 3), (end, y + ROW - 3)], bar.colour.filled()))
                .map_err(|e| fail(&e))?;
            write(&bar.text, (end + 6, y + ROW / 2), text(FONT, INK, HPos::Left))?;
            marks.push(y);
            y += ROW;
        }
        for y in marks {
            let line = |x: i32, colour: RGBColor| PathElement::new([(x, y), (x, y + ROW)], colour.stroke_width(1));
            root.draw(&line(left, LINE)).map_err(|e| fail(&e))?;
            if let Some(reference) = self.reference {
                root.draw(&line(at(reference), SOFT)).map_err(|e| fail(&e))?;
            }
        }
        root.present().map_err(|e| fail(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values_and_keys_stand_beside_their_names() {
        let (judged, other, key) = (RGBColor(1, 2, 3), RGBColor(4, 5, 6), RGBColor(7, 8, 9));
        let bar = |value, colour| Bar { heading: None, label: "a".into(), value, text: String::new(), colour };
        let bars = Bars {
            title: "title".into(),
            origin: "origin".into(),
            bars: vec![bar(40.0, judged), bar(20.0, judged), bar(0.0, other)],
            reference: Some(50.0),
            legend: vec![("of the key".into(), key)],
        };
        let svg = bars.svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let number = |node: &roxmltree::Node<'_, '_>, name: &str| node.attribute(name).unwrap().parse::<i32>().unwrap();
        let of = |colour: RGBColor| -> Vec<(i32, i32)> {
            let fill = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
            let rectangles = document.descendants().filter(|node| node.attribute("fill") == Some(&fill));
            rectangles.map(|node| (number(&node, "x"), number(&node, "width"))).collect()
        };
        let [(left, long), (below, short)] = of(judged)[..] else { panic!("{svg}") };
        // The reference is the longest and ends where bars end at the latest.
        let scale = f64::from(RIGHT - left) / 50.0;
        assert_eq!((long, short), ((40.0 * scale).round() as i32, (20.0 * scale).round() as i32), "{svg}");
        assert_eq!((below, of(other)), (left, vec![(left, 1)]), "nothing is seen as well: {svg}");
        let [(at, wide)] = of(key)[..] else { panic!("{svg}") };
        let name =
            document.descendants().find(|node| node.text().is_some_and(|text| text.trim() == "of the key")).unwrap();
        let name = number(&name.ancestors().find(|node| node.has_attribute("x")).unwrap(), "x");
        assert_eq!((wide, name - (at + wide)), (10, 6), "{svg}");
    }
}
