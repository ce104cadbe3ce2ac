//! `list`: operators and candidates. Looks at declarations only.

use super::{Failure, Workplace, print};
use crate::core::candidate::{Body, Candidate};
use crate::core::shape::{Axis, Domain};
use crate::core::suite::Suite;
use clap::Args;
use serde_json::{Value, json};

/// Arguments of `list`.
#[derive(Args)]
pub struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Only operators whose name contains this
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

impl List {
    /// Prints the list.
    pub fn run(self, workplace: &Workplace<'_>) -> Result<(), Failure> {
        let mut suites = workplace.suites.to_vec();
        let named = |suite: &Suite| self.filters.iter().any(|filter| suite.operator.name().contains(filter));
        suites.retain(|suite| self.filters.is_empty() || named(suite));
        if suites.is_empty() && !self.filters.is_empty() {
            let filters = self.filters.join("`, `");
            let operators: Vec<&str> = workplace.suites.iter().map(|suite| suite.operator.name()).collect();
            return Err(Failure::Input(format!("no operator has `{filters}` in its name: {}", operators.join(", "))));
        }
        print(&if self.json {
            format!("{:#}\n", Value::Array(suites.iter().map(describe_json).collect()))
        } else {
            suites.iter().map(describe).collect()
        })
    }
}

fn describe(suite: &Suite) -> String {
    let operator = &suite.operator;
    let names = |ports: &[crate::core::port::Port]| ports.iter().map(|port| port.name).collect::<Vec<_>>().join(", ");
    let axes = operator.axes().iter().map(describe_axis).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "{}: {} -> {}\n  shape: {axes}\n",
        operator.name(),
        names(operator.inputs()),
        names(operator.outputs())
    );
    let demands: Vec<&str> = operator.constraints().iter().map(|constraint| constraint.name).collect();
    if !demands.is_empty() {
        text += &format!("  demands: {}\n", demands.join("; "));
    }
    for candidate in &suite.candidates {
        let limits: Vec<String> = candidate.traits.limits.iter().map(ToString::to_string).collect();
        let limits = if limits.is_empty() { String::new() } else { format!("; takes {}", limits.join("; ")) };
        let dtypes = dtypes(suite, candidate).join(", ");
        text += &format!("  {:<5} {} ({dtypes}){limits}\n", device(candidate), candidate.name);
    }
    text
}

fn describe_axis(axis: &Axis) -> String {
    match &axis.domain {
        Domain::Extent { min, max } => format!("{} {min}..={max}", axis.name),
        Domain::Choice(values) => {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            format!("{} {}", axis.name, values.join(" | "))
        }
    }
}

fn describe_json(suite: &Suite) -> Value {
    let operator = &suite.operator;
    let candidate = |c: &Candidate| json!({ "name": c.name, "device": device(c), "dtypes": dtypes(suite, c) });
    json!({
        "operator": operator.name(),
        "axes": operator.axes().iter().map(|axis| axis.name).collect::<Vec<_>>(),
        "inputs": operator.inputs().iter().map(|port| port.name).collect::<Vec<_>>(),
        "outputs": operator.outputs().iter().map(|port| port.name).collect::<Vec<_>>(),
        "candidates": suite.candidates.iter().map(candidate).collect::<Vec<_>>(),
    })
}

fn device(candidate: &Candidate) -> &'static str {
    match candidate.body {
        Body::Cpu(_) => "cpu",
        Body::Cuda(_) | Body::Enqueue(_) => "cuda",
    }
}

fn dtypes(suite: &Suite, candidate: &Candidate) -> Vec<&'static str> {
    suite.dtypes_of(candidate).map(|dtype| dtype.name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::command::samples::suite;

    #[test]
    fn each_candidate_is_listed_with_where_it_runs() {
        let text = describe(&suite());
        assert!(text.contains("\n  cpu   host (f32)\n") && text.ends_with("\n  cuda  other_kernel (f32)\n"), "{text}");
        let listed = describe_json(&suite())["candidates"].clone();
        let of = |name: &str, device: &str| json!({ "name": name, "device": device, "dtypes": ["f32"] });
        let kernels = [of("kernel", "cuda"), of("other_kernel", "cuda")];
        assert_eq!(listed, json!([[of("host", "cpu"), of("other_host", "cpu")], kernels].concat()));
    }
}
