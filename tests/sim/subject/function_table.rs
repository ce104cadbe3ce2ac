//! Functions called through a table of pointers: lanes that go to different ones, and results that go from one to the
//! next.

use super::*;

fn outcome(function: i32, x: f64, at: usize) -> f64 {
    match function {
        0 => 2.0 * x,
        1 => x + at as f64,
        2 => x.max(0.0),
        3 if at.is_multiple_of(3) => -x,
        3 => (at % 5) as f64 * x,
        _ => x,
    }
}

/// Each element goes to the function that its number says, or to none.
pub fn apply(n: usize) -> Subject {
    let x = small(n, 16);
    let which: Vec<i32> = random(n, 17).iter().map(|value| (1.5 + 3.5 * value).round() as i32).collect();
    let values: Vec<f64> = (0..n).map(|at| outcome(which[at], x[at], at)).collect();
    let sums = (0..n).map(|at| values[at] + values.get(at ^ 1).copied().unwrap_or(0.0)).collect();
    let which = Argument::Input(which.iter().flat_map(|number| number.to_le_bytes()).collect());
    let arguments = vec![Argument::Input(bytes_of_f32(&x)), which, Argument::Output(4 * n), scalar(n as i32)];
    subject("apply", n, arguments, exactly(2, sums))
}

/// All elements go to one function and then to another.
pub fn apply_pair(n: usize, [first, second]: [i32; 2]) -> Subject {
    let x = small(n, 18);
    let values = (0..n).map(|at| outcome(second, outcome(first, x[at], at), at)).collect();
    let scalars = [n as i32, first, second].map(scalar);
    let arguments = [Argument::Input(bytes_of_f32(&x)), Argument::Output(4 * n)].into_iter().chain(scalars).collect();
    subject("apply_pair", n, arguments, exactly(1, values))
}

fn subject(entry: &str, n: usize, arguments: Vec<Argument>, expected: Vec<Expected>) -> Subject {
    Subject {
        name: format!("function_table {entry}"),
        ptx: fixture("function_table"),
        launch: Launch::new(entry, n.div_ceil(128) as u32, 128),
        arguments,
        spare: Vec::new(),
        then: Vec::new(),
        expected,
        is_async: false,
    }
}
