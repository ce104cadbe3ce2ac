//! The fault table: the gate has to catch every faulty candidate of `fixtures/faulty`, by a check that is meant to,
//! and to accept every right one, however odd it looks.
//!
//! CPU fixtures run here, and so do CUDA fixtures in the simulator; on a GPU each of them runs in a child process, since
//! some take the device away. The table stands at the end of the output.

#[path = "../../fixtures/faulty/cpu/mod.rs"]
mod cpu;
mod cuda;
mod finding;
mod gate;
mod host;
mod judgement;
mod persisting;
mod sim;
mod small;
mod steady;
mod table;
mod timed;

use finding::{Finding, SEEDS, find};
use judgement::{Expectation, judge};
use kernelgate::check::boundary::{elements, points};
use kernelgate::core::candidate::{Candidate, Traits};
use kernelgate::core::operator::Operator;
use kernelgate::core::seed::rng;
use kernelgate::core::suite::Suite;
use kernelgate::device::Device;
use kernelgate::device::cpu::CpuDevice;
use kernelgate::ops::catalogue;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use small::{PAST_16_BITS, Small};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use table::Table;

fn main() -> ExitCode {
    if let Some(code) = cuda::child() {
        return code;
    }
    if std::env::var_os(gate::VARIABLE).is_some() {
        return gate::run();
    }
    let command_line: Vec<String> = std::env::args().collect();
    if let [_, flag, archs] = &command_line[..]
        && flag == "--compile"
    {
        return cuda::compile(archs);
    }
    let table = Arc::new(Table::default());
    let mut trials = vec![
        Trial::test("table::no_fixture_is_left_out", || Ok(complete()?)),
        Trial::test("table::what_16_bits_cannot_hold_is_run", || Ok(past_16_bits_fits()?)),
        Trial::test("table::a_wrong_expectation_is_noticed", || Ok(judgement::notices_wrong_expectations()?)),
    ];
    trials.extend(right_ones().map(|(name, expectation)| cpu_trial(&table, name, expectation, right_candidate)));
    for fixture in cpu::fixtures() {
        let expectation = Expectation::of(fixture.operator, fixture.defect, fixture.caught_by);
        trials.push(cpu_trial(&table, fixture.name.into(), expectation, move |_| (fixture.make)()));
    }
    trials.extend(timed::trials());
    match cuda::fixtures() {
        Ok(fixtures) => {
            let all = fixtures.clone();
            trials.push(Trial::test("table::a_busy_machine_finds_the_same", move || {
                Ok(steady::same_on_a_busy_machine(&all)?)
            }));
            trials.extend(fixtures.into_iter().flat_map(|f| [sim_trial(&table, f.clone()), cuda_trial(&table, f)]))
        }
        Err(why) => trials.push(Trial::test("cuda::expected.json", move || Err(why.into()))),
    }
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    table.print();
    conclusion.exit_code()
}

/// The catalogue and the operators of the fixtures, made once.
fn suite(operator: &str) -> Result<&'static Suite, String> {
    static CATALOGUE: OnceLock<Vec<Suite>> = OnceLock::new();
    let all = CATALOGUE.get_or_init(|| catalogue().into_iter().chain(cpu::suites()).collect());
    let found = all.iter().find(|suite| suite.operator.name() == operator);
    found.ok_or_else(|| {
        format!("neither the catalogue nor the fixtures have an operator `{operator}`; correct the fixture")
    })
}

/// The candidates that the faulty ones were made from: a table that rejects everything would reject them too.
fn right_ones() -> impl Iterator<Item = (String, Expectation)> {
    let mut operators: Vec<&str> = cpu::fixtures().iter().map(|fixture| fixture.operator).collect();
    operators.sort_unstable();
    operators.dedup();
    operators.into_iter().map(|operator| {
        (format!("right_{operator}"), Expectation::of(operator, "none: the candidate of the catalogue", &[]))
    })
}

fn right_candidate(suite: &Suite) -> Candidate {
    suite.candidates[0].clone()
}

fn cpu_trial(
    table: &Arc<Table>,
    name: String,
    expectation: Expectation,
    make: impl Fn(&Suite) -> Candidate + Send + 'static,
) -> Trial {
    let table = Arc::clone(table);
    Trial::test(format!("cpu::{}::{name}", expectation.operator), move || {
        let suite = suite(&expectation.operator)?;
        let elements = PAST_16_BITS.max(longest(&*suite.operator));
        let device = Small { device: Box::new(CpuDevice::new()), elements };
        let mut findings = Vec::new();
        for seed in SEEDS {
            for dtype in make(suite).traits.dtypes {
                findings.push(find(&device as &dyn Device, suite, &make(suite), dtype, seed));
            }
        }
        conclude(&table, "cpu", &name, &expectation, &findings)
    })
}

fn cuda_trial(table: &Arc<Table>, fixture: cuda::Fixture) -> Trial {
    let table = Arc::clone(table);
    Trial::ignorable_test(format!("cuda::{}::{}", fixture.operator, fixture.name()), move || {
        let expectation = fixture.expectation();
        if let Err(why) = cuda::available(&fixture) {
            table.skip("cuda", fixture.name(), &expectation, &why);
            return if cuda::is_required() && cuda::shows_on_a_gpu(&fixture) {
                Err(why.into())
            } else {
                Ok(Completion::ignored_with(why))
            };
        }
        let findings = cuda::findings(&fixture)?;
        conclude(&table, "cuda", fixture.name(), &expectation, &findings).map(|()| Completion::Completed)
    })
}

fn sim_trial(table: &Arc<Table>, fixture: cuda::Fixture) -> Trial {
    let table = Arc::clone(table);
    Trial::ignorable_test(format!("sim::{}::{}", fixture.operator, fixture.name()), move || {
        let expectation = fixture.expectation();
        if let Err(why) = sim::available(&fixture) {
            table.skip("sim", fixture.name(), &expectation, &why);
            return if sim::is_required() && sim::shows(&fixture) {
                Err(why.into())
            } else {
                Ok(Completion::ignored_with(why))
            };
        }
        let findings = sim::findings(&fixture)?;
        conclude(&table, "sim", fixture.name(), &expectation, &findings).map(|()| Completion::Completed)
    })
}

/// Enters the findings into the table; fails if any of them is not what was expected.
fn conclude(
    table: &Table,
    device: &str,
    name: &str,
    expectation: &Expectation,
    findings: &[Finding],
) -> Result<(), Failed> {
    let wrong: Vec<String> = findings
        .iter()
        .filter_map(|finding| {
            let why = judge(expectation, finding).err()?;
            Some(format!("{} seed {:#x}: {why}", finding.dtype, finding.seed))
        })
        .collect();
    table.enter(device, name, expectation, findings, wrong.len());
    if findings.is_empty() {
        Err("nothing was run".into())
    } else if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n").into())
    }
}

/// Elements of the largest point of an operator at which one axis goes past 16 bits.
fn longest(operator: &dyn Operator) -> usize {
    let points = points(operator, &Traits::default(), 0, &mut rng(0));
    let long = points.iter().filter(|point| point.iter().any(|&extent| extent > 65_536));
    long.map(|point| elements(operator, point)).max().unwrap_or(0)
}

/// Every operator goes past 16 bits along some axis, at a size that the table can afford.
fn past_16_bits_fits() -> Result<(), String> {
    const MOST: usize = 48 * 65_537;
    for (name, _) in right_ones() {
        let operator = &*suite(name.trim_start_matches("right_"))?.operator;
        match longest(operator) {
            0 => return Err(format!("{}: no axis goes past 16 bits", operator.name())),
            elements if elements > MOST => {
                return Err(format!("{}: {elements} elements past 16 bits are more than {MOST}", operator.name()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Holds the table against the files and the catalogue.
fn complete() -> Result<(), String> {
    let (cpu, cuda) = (cpu::fixtures(), cuda::fixtures()?);
    cuda::every_file_is_listed(&cuda)?;
    let mut names: Vec<&str> = cpu.iter().map(|fixture| fixture.name).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("two CPU fixtures are called `{}`", pair[0]));
    }
    for fixture in &cpu {
        // A candidate is asked by position: were an axis added to the operator, the fixture would read another one.
        let axes = suite(fixture.operator)?.operator.axes().to_vec();
        if cpu::axes(fixture.operator) != Some(axes) {
            return Err(format!(
                "the shape of `{}` in fixtures/faulty/cpu/mod.rs is not that of its operator",
                fixture.operator
            ));
        }
    }
    let faulty = cpu.iter().filter(|fixture| !fixture.caught_by.is_empty()).count();
    let faulty_cuda = cuda.iter().filter(|fixture| fixture.verdict == "fail").count();
    let odd = cpu.len() + cuda.len() - faulty - faulty_cuda;
    if faulty < 16 || faulty + faulty_cuda < 30 || odd < 8 {
        return Err(format!(
            "{faulty} faulty CPU candidates, {faulty_cuda} faulty CUDA ones, {odd} right ones: fixtures are missing"
        ));
    }
    Ok(())
}
