//! Typed shapes: named extents with ranges, and attributes with lists of values.
//!
//! The `shape!` macro makes a plain struct; the harness sees it as a [`Point`], one number an axis, which it can
//! enumerate, draw at random and shrink.

use std::fmt::Write as _;

/// One value an axis: an extent itself, or the index into an attribute's list.
pub type Point = Vec<usize>;

/// The coordinate of an attribute whose value is not in its list.
pub const NOT_LISTED: usize = usize::MAX;

/// A value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Attribute {
    /// A flag such as `causal`.
    Bool(bool),
    /// A count such as `stride`.
    Int(i64),
    /// A number such as `eps`; `f32` attributes are exact in it.
    Float(f64),
    /// One of several words, such as the name of a `layout`.
    Word(&'static str),
}

impl std::fmt::Display for Attribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Attribute::Bool(v) => write!(f, "{v}"),
            Attribute::Int(v) => write!(f, "{v}"),
            // Shown as the f32 that it came from: 1e-5, not 9.999999747378752e-6.
            Attribute::Float(v) => write!(f, "{:?}", *v as f32),
            Attribute::Word(v) => f.write_str(v),
        }
    }
}

macro_rules! attribute_from {
    ($($ty:ty => $make:expr),* $(,)?) => {$(
        impl From<$ty> for Attribute {
            fn from(value: $ty) -> Self {
                ($make)(value)
            }
        }
    )*};
}

attribute_from! {
    bool => Attribute::Bool,
    usize => |v| Attribute::Int(v as i64),
    i32 => |v| Attribute::Int(i64::from(v)),
    i64 => Attribute::Int,
    f32 => |v| Attribute::Float(f64::from(v)),
    &'static str => Attribute::Word,
}

/// One named axis of a shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The field's name, as in `--shape rows=8,cols=4`.
    pub name: &'static str,
    /// What the axis may hold.
    pub domain: Domain,
}

/// The values of an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Domain {
    /// An extent between two bounds, both included.
    Extent {
        /// Smallest legal extent.
        min: usize,
        /// Largest legal extent.
        max: usize,
    },
    /// An attribute; the first value is the default.
    Choice(Vec<Attribute>),
}

impl Axis {
    /// Smallest and largest coordinate.
    pub fn bounds(&self) -> (usize, usize) {
        match &self.domain {
            Domain::Extent { min, max } => (*min, *max),
            Domain::Choice(values) => (0, values.len().saturating_sub(1)),
        }
    }

    /// Whether this is an extent and not an attribute.
    pub fn is_extent(&self) -> bool {
        matches!(self.domain, Domain::Extent { .. })
    }
}

/// A typed shape; implemented by `shape!`, not by hand.
/// ```
/// use kernelgate::prelude::*;
///
/// shape! { struct Matrix { rows: 1..=4096, cols: 1..=8192 } }
///
/// let shape = Matrix { rows: 3, cols: 5 };
/// assert_eq!(describe(&Matrix::axes(), &Shape::to_point(&shape)), "rows=3,cols=5");
/// ```
pub trait Shape: Clone + Send + Sync + 'static {
    /// The axes in the order of the fields.
    fn axes() -> Vec<Axis>;
    /// The shape at a point; coordinates are inside their bounds.
    fn from_point(point: &[usize]) -> Self;
    /// The point of this shape; [`NOT_LISTED`] where an attribute has a value that its axis does not list.
    fn to_point(&self) -> Point;
}

/// What is wrong with a point: the first coordinate outside its axis, and what is allowed there.
pub fn outside(axes: &[Axis], point: &[usize]) -> Option<String> {
    axes.iter().zip(point).find_map(|(axis, &at)| {
        let (min, max) = axis.bounds();
        match &axis.domain {
            _ if (min..=max).contains(&at) => None,
            Domain::Extent { .. } => Some(format!("`{}={at}`: expected a number in {min}..={max}", axis.name)),
            Domain::Choice(values) => {
                let all: Vec<_> = values.iter().map(Attribute::to_string).collect();
                Some(format!("`{}` has a value that is not listed: expected one of {}", axis.name, all.join(", ")))
            }
        }
    })
}

/// `rows=3,cols=5,eps=1e-5`.
pub fn describe(axes: &[Axis], point: &[usize]) -> String {
    let mut text = String::new();
    for (axis, &at) in axes.iter().zip(point) {
        let separator = if text.is_empty() { "" } else { "," };
        let _ = match &axis.domain {
            Domain::Extent { .. } => write!(text, "{separator}{}={at}", axis.name),
            Domain::Choice(values) => write!(text, "{separator}{}={}", axis.name, values[at]),
        };
    }
    text
}

/// The reverse of [`describe`]; attributes may be left out and then take their default.
///
/// # Errors
/// On an unknown axis, a value outside its domain, or a missing extent; the text says what is allowed.
pub fn parse(axes: &[Axis], text: &str) -> Result<Point, String> {
    let mut given: Vec<Option<usize>> = axes.iter().map(|axis| if axis.is_extent() { None } else { Some(0) }).collect();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, value) =
            part.split_once('=').ok_or_else(|| format!("shape `{text}`: `{part}` is not `axis=value`"))?;
        let at = axes.iter().position(|axis| axis.name == name.trim()).ok_or_else(|| {
            let names: Vec<_> = axes.iter().map(|axis| axis.name).collect();
            format!("shape `{text}`: no axis `{name}`; the axes are {}", names.join(", "))
        })?;
        given[at] = Some(parse_coordinate(&axes[at], value.trim())?);
    }
    axes.iter()
        .zip(given)
        .map(|(axis, value)| value.ok_or_else(|| format!("shape `{text}`: axis `{}` is missing", axis.name)))
        .collect()
}

fn parse_coordinate(axis: &Axis, value: &str) -> Result<usize, String> {
    match &axis.domain {
        Domain::Extent { min, max } => value
            .parse::<usize>()
            .ok()
            .filter(|v| (min..=max).contains(&v))
            .ok_or_else(|| format!("`{}={value}`: expected a number in {min}..={max}", axis.name)),
        Domain::Choice(values) => {
            let same = |v: &&Attribute| {
                v.to_string() == value || value.parse::<f32>().is_ok_and(|x| **v == Attribute::Float(f64::from(x)))
            };
            values.iter().position(|v| same(&v)).ok_or_else(|| {
                let all: Vec<_> = values.iter().map(Attribute::to_string).collect();
                format!("`{}={value}`: expected one of {}", axis.name, all.join(", "))
            })
        }
    }
}

/// Declares shapes: fields are extents (`n: 1..=1024`) or attributes (`eps: f32 = [1e-5, 1e-3]`, default first). The type
/// of an attribute may be one of your own that becomes an [`Attribute`](crate::core::shape::Attribute), a word say.
///
/// ```
/// use kernelgate::prelude::*;
/// shape! { struct Rows { rows: 1..=65536, cols: 1..=8192, eps: f32 = [1e-5, 1e-3], causal: bool = [false, true] } }
/// let shape = Rows { rows: 3, cols: 5, eps: 1e-3, causal: true };
/// assert_eq!(describe(&Rows::axes(), &shape.to_point()), "rows=3,cols=5,eps=0.001,causal=true");
/// ```
#[macro_export]
macro_rules! shape {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($body:tt)* }) => {
        $crate::shape!(@field [$(#[$meta])* $vis $name] [] $($body)*);
    };
    // An attribute: a type and its values.
    (@field $head:tt [$($done:tt)*] $(#[$doc:meta])* $field:ident : $ty:ident = [$($value:expr),+ $(,)?] $(, $($rest:tt)*)?) => {
        $crate::shape!(@field $head [$($done)* ($(#[$doc])* $field, $ty, choice, [$($value),+])] $($($rest)*)?);
    };
    // An extent: an inclusive range.
    (@field $head:tt [$($done:tt)*] $(#[$doc:meta])* $field:ident : $range:expr $(, $($rest:tt)*)?) => {
        $crate::shape!(@field $head [$($done)* ($(#[$doc])* $field, usize, extent, $range)] $($($rest)*)?);
    };
    (@field [$(#[$meta:meta])* $vis:vis $name:ident] [$(($(#[$doc:meta])* $field:ident, $ty:ident, $kind:ident, $domain:expr))*]) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $($(#[$doc])* pub $field: $ty,)*
        }

        impl $crate::core::shape::Shape for $name {
            fn axes() -> ::std::vec::Vec<$crate::core::shape::Axis> {
                ::std::vec![$($crate::core::shape::Axis {
                    name: stringify!($field),
                    domain: $crate::shape!(@domain $kind, $ty, $domain),
                }),*]
            }

            fn from_point(point: &[usize]) -> Self {
                let mut at = point.iter().copied();
                Self {
                    $($field: {
                        let at = at.next().expect("a point has a coordinate for every axis");
                        $crate::shape!(@get $kind, $ty, $domain, at)
                    },)*
                }
            }

            fn to_point(&self) -> $crate::core::shape::Point {
                ::std::vec![$($crate::shape!(@put $kind, $ty, $domain, self.$field)),*]
            }
        }
    };
    (@domain extent, $ty:ident, $range:expr) => {{
        let range: ::std::ops::RangeInclusive<usize> = $range;
        $crate::core::shape::Domain::Extent { min: *range.start(), max: *range.end() }
    }};
    (@domain choice, $ty:ident, $values:expr) => {{
        let values: &[$ty] = &$values;
        $crate::core::shape::Domain::Choice(values.iter().map(|&v| v.into()).collect())
    }};
    (@get extent, $ty:ident, $range:expr, $at:expr) => { $at };
    (@get choice, $ty:ident, $values:expr, $at:expr) => {{
        let values: &[$ty] = &$values;
        values[$at]
    }};
    (@put extent, $ty:ident, $range:expr, $value:expr) => { $value };
    (@put choice, $ty:ident, $values:expr, $value:expr) => {{
        let values: &[$ty] = &$values;
        values.iter().position(|v| *v == $value).unwrap_or($crate::core::shape::NOT_LISTED)
    }};
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Order {
        Rows,
        Columns,
    }

    impl From<Order> for Attribute {
        fn from(order: Order) -> Self {
            Attribute::Word(if order == Order::Rows { "rows" } else { "columns" })
        }
    }

    crate::shape! { struct Ordered { n: 1..=9, order: Order = [Order::Rows, Order::Columns] } }

    #[test]
    fn an_attribute_may_be_a_word() {
        let shape = Ordered { n: 3, order: Order::Columns };
        let text = describe(&Ordered::axes(), &shape.to_point());
        assert_eq!(text, "n=3,order=columns");
        assert_eq!(Ordered::from_point(&parse(&Ordered::axes(), &text).unwrap()), shape);
        assert_eq!(parse(&Ordered::axes(), "n=3,order=x").unwrap_err(), "`order=x`: expected one of rows, columns");
    }

    crate::shape! { struct Demo { rows: 0..=100, cols: 1..=1 << 10, eps: f32 = [1e-5, 1e-3], causal: bool = [false, true] } }

    #[rstest]
    #[case("rows=3,cols=5", Ok(vec![3, 5, 0, 0]))]
    #[case("cols=5,rows=0,eps=1e-3,causal=true", Ok(vec![0, 5, 1, 1]))]
    #[case("rows=3", Err("axis `cols` is missing"))]
    #[case("rows=3,cols=0", Err("1..=1024"))]
    #[case("rows=3,cols=9,depth=1", Err("the axes are rows, cols, eps, causal"))]
    #[case("rows=3,cols=9,eps=2", Err("expected one of"))]
    #[case("rows", Err("not `axis=value`"))]
    fn parsing(#[case] text: &str, #[case] expected: Result<Point, &str>) {
        match (parse(&Demo::axes(), text), expected) {
            (Ok(point), Ok(expected)) => assert_eq!(point, expected),
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (got, expected) => panic!("{got:?} against {expected:?}"),
        }
    }

    #[test]
    fn a_shape_round_trips() {
        let shape = Demo { rows: 7, cols: 1024, eps: 1e-3, causal: true };
        let text = describe(&Demo::axes(), &shape.to_point());
        assert_eq!(text, "rows=7,cols=1024,eps=0.001,causal=true");
        assert_eq!(Demo::from_point(&parse(&Demo::axes(), &text).unwrap()), shape);
    }
}
