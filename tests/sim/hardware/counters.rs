//! Sectors and wavefronts as the simulator counts them, beside those of Nsight Compute on a GPU.

use super::launches::Launched;
use kernelgate::core::packed;
use kernelgate::sim::{Checks, Metrics, Options};

/// What is compared: a name, the metric of Nsight Compute, the count of the simulator.
type Counter = (&'static str, &'static str, fn(&Metrics) -> u64);

pub const COUNTERS: [Counter; 8] = [
    ("load requests", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", |m| m.global_reads.requests),
    ("load sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", |m| m.global_reads.units),
    ("store requests", "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", |m| m.global_writes.requests),
    ("store sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", |m| m.global_writes.units),
    ("shared load wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", |m| m.shared_reads.units),
    ("shared load conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", |m| {
        m.shared_reads.units - m.shared_reads.ideal_units
    }),
    ("shared store wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", |m| m.shared_writes.units),
    ("shared store conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", |m| {
        m.shared_writes.units - m.shared_writes.ideal_units
    }),
];

/// The counts of the simulator, in the order of [`COUNTERS`].
pub fn simulated(launched: &Launched) -> [u64; COUNTERS.len()] {
    let options = Options { checks: Checks::NONE, ..Options::default() };
    let outcome = launched.subject.run(&launched.module, &options);
    let metrics = outcome.unwrap_or_else(|e| panic!("{}: {e}", launched.name)).metrics.remove(0);
    COUNTERS.map(|(_, _, count)| count(&metrics))
}

/// The counts that `ncu --csv --page raw` wrote: kernels in the order of the launches, a row each after the two of the header.
pub fn measured(csv_text: &str) -> Vec<(String, [Option<u64>; COUNTERS.len()])> {
    // What the profiler and the program print comes before.
    let start = csv_text.find("\"ID\"").unwrap_or(csv_text.len());
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(&csv_text.as_bytes()[start..]);
    let header = reader.headers().cloned().unwrap_or_default();
    let column = |name: &str| header.iter().position(|field| field == name);
    let kernel = column("Kernel Name");
    let columns = COUNTERS.map(|(_, metric, _)| column(metric));
    let rows = reader.records().filter_map(Result::ok).filter(|row| row.get(0).is_some_and(|id| !id.is_empty()));
    let number = |text: &str| text.replace(',', "").parse::<f64>().ok().map(|count| count as u64);
    rows.map(|row| {
        let name = kernel.and_then(|at| row.get(at)).unwrap_or_default().to_owned();
        (name, columns.map(|at| at.and_then(|at| row.get(at)).and_then(number)))
    })
    .collect()
}

fn path() -> String {
    format!("{}/fixtures/hardware/counters.txt.xz", env!("CARGO_MANIFEST_DIR"))
}

type Counts = [u64; COUNTERS.len()];

/// Name, identity, measured, simulated.
pub type Recorded = (String, String, Counts, Counts);

/// Writes what was measured beside what is simulated: name, identity, both lists.
pub fn write(launches: &[Launched], csv: &str) {
    let counted = launches.iter().filter(|launched| launched.name.ends_with("#0"));
    let names = COUNTERS.map(|counter| counter.0).join(", ");
    let mut text = format!("# {names}: as Nsight Compute counted them, then as the simulator does.\n");
    for (launched, (kernel, measured)) in counted.zip(measured(csv)) {
        assert!(
            kernel.contains(&launched.subject.launch.entry),
            "{kernel} stands where {} was launched",
            launched.name
        );
        let join = |counts: Counts| counts.map(|count| count.to_string()).join(" ");
        let measured = measured.map(|count| count.unwrap_or(u64::MAX));
        text +=
            &format!("{}\t{}\t{}\t{}\n", launched.name, launched.identity(), join(measured), join(simulated(launched)));
    }
    packed::pack(text.as_bytes()).and_then(|packed| std::fs::write(path(), packed)).expect("counters.txt.xz");
}

/// The lines of the record.
pub fn read() -> Vec<Recorded> {
    let text = std::fs::read(path()).and_then(packed::text).unwrap_or_else(|e| panic!("{}: {e}", path()));
    let counts = |text: &str| -> Counts {
        let all: Vec<u64> = text.split(' ').filter_map(|count| count.parse().ok()).collect();
        all.try_into().unwrap_or_else(|_| panic!("counters.txt.xz: `{text}`"))
    };
    let line = |line: &str| match *line.split('\t').collect::<Vec<_>>() {
        [name, of, measured, simulated] => Some((name.into(), of.into(), counts(measured), counts(simulated))),
        _ => None,
    };
    text.lines().filter_map(line).collect()
}

/// The record for people: each count as `measured`, or `measured / simulated` where they differ.
pub fn table(recorded: &[Recorded]) -> String {
    let names = COUNTERS.map(|counter| counter.0).join(" | ");
    let same = recorded.iter().filter(|(_, _, measured, simulated)| measured == simulated).count();
    let rule = "|---".repeat(COUNTERS.len() + 1);
    let mut text = format!(
        "{same} of {} kernels have all eight counts of the GPU. Where two numbers stand, the second is the simulator's.\n\n| kernel | {names} |\n{rule}|\n",
        recorded.len()
    );
    for (name, _, measured, simulated) in recorded {
        let cell = |(measured, simulated): (&u64, &u64)| {
            if measured == simulated { measured.to_string() } else { format!("{measured} / {simulated}") }
        };
        let cells: Vec<String> = measured.iter().zip(simulated).map(cell).collect();
        text += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    text
}
