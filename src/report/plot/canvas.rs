//! Colours and text of plots, and the style that makes one file readable on light and on dark ground.

use plotters::prelude::{IntoFont as _, RGBColor, TextStyle};
use plotters::style::Color as _;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The ground.
pub const PAPER: RGBColor = RGBColor(254, 255, 255);
/// Text.
pub const INK: RGBColor = RGBColor(27, 31, 39);
/// Text that matters less, axes.
pub const SOFT: RGBColor = RGBColor(90, 99, 114);
/// Grid.
pub const LINE: RGBColor = RGBColor(225, 229, 235);

/// Colours of series, each with the one that takes its place on dark ground.
const SERIES: [(RGBColor, RGBColor); 8] = [
    (RGBColor(42, 86, 198), RGBColor(143, 176, 255)),
    (RGBColor(194, 87, 12), RGBColor(247, 171, 98)),
    (RGBColor(29, 122, 70), RGBColor(98, 207, 147)),
    (RGBColor(156, 42, 141), RGBColor(236, 143, 223)),
    (RGBColor(11, 114, 133), RGBColor(98, 203, 220)),
    (RGBColor(138, 109, 0), RGBColor(224, 194, 90)),
    (RGBColor(180, 35, 24), RGBColor(255, 143, 133)),
    (RGBColor(91, 95, 199), RGBColor(179, 176, 255)),
];

/// The most series that can be told apart.
pub const MOST_SERIES: usize = SERIES.len();

/// The dark counterparts of the first four.
const DARK: [(RGBColor, RGBColor); 4] = [
    (PAPER, RGBColor(20, 23, 28)),
    (INK, RGBColor(232, 234, 238)),
    (SOFT, RGBColor(161, 169, 182)),
    (LINE, RGBColor(43, 49, 59)),
];

/// The colour of a series.
pub fn series_colour(i: usize) -> RGBColor {
    SERIES[i % SERIES.len()].0
}

/// The colour of a group of bars: the first for what is judged, the second for what it stands beside.
pub fn group_colour(i: usize) -> RGBColor {
    series_colour(i)
}

/// A size that is asked for, over the one that then stands in the file.
const WRITTEN: f64 = 1.24;

/// Text of a size and colour, at a side of its point.
pub fn text(size: u32, colour: RGBColor, side: HPos) -> TextStyle<'static> {
    // The library takes a size for that of a whole line.
    let font = ("system-ui, sans-serif", f64::from(size) * WRITTEN).into_font();
    TextStyle { color: colour.to_backend_color(), pos: Pos::new(side, VPos::Center), ..TextStyle::from(font) }
}

/// About how wide a text is, in pixels.
pub fn width(text: &str, size: u32) -> i32 {
    (text.chars().count() as f64 * f64::from(size) * 0.56).ceil() as i32
}

/// What the library writes at each element, and which is so anyway, or is said once for all.
const SAID_ONCE: [&str; 2] = [" opacity=\"1\"", " font-family=\"system-ui, sans-serif\""];

/// The file with the style for dark ground, and a title for those who cannot see it.
pub fn finish(svg: &str, title: &str) -> String {
    let hex = |c: RGBColor| format!("#{:02X}{:02X}{:02X}", c.0, c.1, c.2);
    let rules: String = DARK
        .iter()
        .chain(&SERIES)
        .map(|&(light, dark)| {
            let (light, dark) = (hex(light), hex(dark));
            format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
        })
        .collect();
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let end = svg.find('>').map_or(0, |at| at + 1);
    let (head, body) = svg.split_at(end);
    let body = SAID_ONCE.iter().fold(body.to_owned(), |body, said| body.replace(said, ""));
    let style = format!("text{{font-family:system-ui,sans-serif}}@media(prefers-color-scheme:dark){{{rules}}}");
    format!("{head}\n<title>{title}</title>\n<style>{style}</style>{body}\n")
}
