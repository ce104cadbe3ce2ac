//! Shapes that differ only in what grows from call to call, such as the past of a cache, told as one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// More values of an axis than this, each one more than the last, are a range.
const FEW: usize = 3;

/// What stands in the place of each shape: itself, or where more than three differ only in axes that count up, all of them
/// with the range of these axes: `past=128…135`.
pub fn merged<'s>(shapes: impl IntoIterator<Item = &'s str>) -> HashMap<&'s str, String> {
    let shapes: BTreeSet<&str> = shapes.into_iter().collect();
    let mut values: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for (axis, value) in shapes.iter().flat_map(|shape| axes(shape)) {
        if let Ok(value) = value.parse() {
            values.entry(axis).or_default().insert(value);
        }
    }
    let counts_up = |axis: &str| values.get(axis).is_some_and(|all| all.len() > FEW && is_without_gap(all));
    let mut alike: BTreeMap<Vec<(&str, &str)>, Vec<&str>> = BTreeMap::new();
    for shape in shapes {
        let fixed = axes(shape).filter(|(axis, _)| !counts_up(axis)).collect();
        alike.entry(fixed).or_default().push(shape);
    }
    let mut all = HashMap::new();
    for group in alike.values() {
        let name = if group.len() > FEW { Some(span(group)) } else { None };
        all.extend(group.iter().map(|&shape| (shape, name.clone().unwrap_or_else(|| shape.to_owned()))));
    }
    all
}

/// The axes of a shape with their values.
fn axes(shape: &str) -> impl Iterator<Item = (&str, &str)> {
    shape.split(',').map(|axis| axis.split_once('=').unwrap_or((axis, "")))
}

fn is_without_gap(values: &BTreeSet<u64>) -> bool {
    values.iter().zip(values.iter().skip(1)).all(|(low, high)| low + 1 == *high)
}

/// The first of some shapes with the range of each axis in which others differ.
fn span(shapes: &[&str]) -> String {
    let of = |axis: &str, first: &str| {
        let named = shapes.iter().flat_map(|shape| axes(shape)).filter(|(name, _)| *name == axis);
        let values: BTreeSet<u64> = named.filter_map(|(_, value)| value.parse().ok()).collect();
        match (values.first(), values.last()) {
            (Some(low), Some(high)) if low < high => format!("{axis}={low}…{high}"),
            _ => format!("{axis}={first}"),
        }
    };
    axes(shapes[0]).map(|(axis, first)| of(axis, first)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(shapes: &[&str]) -> BTreeSet<String> {
        merged(shapes.iter().copied()).into_values().collect()
    }

    #[test]
    fn a_past_that_grows_is_one_shape_and_other_extents_are_not() {
        let grown: Vec<String> =
            (128..136).map(|past| format!("heads=4,past={past},spare={},eps=1e-5", 136 - past)).collect();
        let mut shapes: Vec<&str> = grown.iter().map(String::as_str).collect();
        assert_eq!(names(&shapes), BTreeSet::from(["heads=4,past=128…135,spare=1…8,eps=1e-5".into()]));
        assert_eq!(names(&shapes[..3]).len(), 3, "three are few");
        // The same kernel with other heads, once.
        shapes.push("heads=8,past=130,spare=6,eps=1e-5");
        assert_eq!(names(&shapes).len(), 2);
        let products = ["m=1,n=256,k=64", "m=1,n=512,k=64", "m=1,n=1024,k=64", "m=1,n=2048,k=64"];
        assert_eq!(names(&products).len(), 4, "extents that do not count up are other work");
    }
}
