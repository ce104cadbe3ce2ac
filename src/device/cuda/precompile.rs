//! Fills the kernel cache: for machines that have no compiler, and before a run, on all cores.

use super::device::support;
use super::presence;
use crate::core::candidate::{Body, Language, Program};
use crate::core::dtype::DType;
use crate::core::environment::COMPILE_SHARE;
use crate::core::suite::Suite;
use crate::toolchain::recipe::key;
use crate::toolchain::{Error, Target, compile, is_cached, nvrtc};
use std::collections::HashSet;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Every CUDA program that the suites launch, in every dtype it runs in, and the gate's own, once each.
#[expect(clippy::mutable_key_type, reason = "a text is the same before it is made and after")]
pub fn programs(suites: &[Suite]) -> Vec<(Program, DType)> {
    let mut seen = HashSet::new();
    let mut all = vec![(support(), DType::F32)];
    for suite in suites {
        for candidate in &suite.candidates {
            let Body::Cuda(kernel) = &candidate.body else { continue };
            let launches = suite.operator.shapes().iter().flat_map(|point| kernel.plan(point).0);
            let further: HashSet<Arc<Program>> = launches.filter_map(|launch| launch.program).collect();
            for dtype in suite.dtypes_of(candidate) {
                all.push((kernel.program.clone(), dtype));
                all.extend(further.iter().map(|program| (Program::clone(program), dtype)));
            }
        }
    }
    all.retain(|(program, dtype)| {
        program.language == Language::Cuda && seen.insert(key(program, *dtype, &Target::Cubin(String::new())))
    });
    all
}

/// One program in one dtype for one architecture.
struct Job {
    program: Program,
    dtype: DType,
    arch: String,
}

impl Job {
    fn run(&self) -> Result<(), Error> {
        compile(&self.program, self.dtype, &Target::Cubin(self.arch.clone())).map(drop)
    }

    fn is_done(&self) -> bool {
        is_cached(&self.program, self.dtype, &Target::Cubin(self.arch.clone()))
    }
}

fn jobs(suites: &[Suite], archs: &[&str]) -> Vec<Job> {
    let programs = programs(suites);
    let of = |arch: &str| {
        let fitting = programs.iter().filter(|(program, _)| program.runs_on(arch));
        fitting.map(|(program, dtype)| Job { program: program.clone(), dtype: *dtype, arch: arch.into() }).collect()
    };
    archs.iter().flat_map(|arch| -> Vec<Job> { of(arch) }).collect()
}

/// Compiles them for each architecture (`sm_90a`) that they can run on into the cache, and returns how many there are.
/// Processes of this very program, with the same arguments, share what is not there yet: NVRTC compiles one program at a
/// time in each.
///
/// # Errors
/// The first program that does not compile, by its file.
pub fn precompile(suites: &[Suite], archs: &[&str]) -> Result<usize, String> {
    let jobs = jobs(suites, archs);
    if let Some(share) = Share::of_this_process()? {
        end_with_who_asked();
        // What fails is told by the process that asked.
        jobs.iter().enumerate().filter(|(i, _)| share.has(*i)).for_each(|(_, job)| drop(job.run()));
        return Ok(jobs.len());
    }
    let missing = jobs.iter().filter(|job| !job.is_done()).count();
    await_all(helpers(missing, &[]));
    for job in &jobs {
        job.run().map_err(|error| format!("{} for {} on {}: {error}", job.program.file, job.dtype, job.arch))?;
    }
    Ok(jobs.len())
}

/// Compiles what the suites need on a GPU of this machine and is not in the cache, before a run that would compile it in
/// turn: processes of this gate, with its own arguments and `--compile`. `say` is told how many kernels and
/// processes there are. Whatever fails here fails again, and is told, in its trial.
pub fn precompile_ahead(suites: &[Suite], ordinal: usize, say: impl Fn(usize, usize)) {
    let Ok(arch) = presence::arch(ordinal) else { return };
    if nvrtc::version().is_err() {
        return;
    }
    let missing = jobs(suites, &[&arch]).iter().filter(|job| !job.is_done()).count();
    let helpers = helpers(missing, &["--compile", &arch]);
    if !helpers.is_empty() {
        say(missing, helpers.len());
    }
    await_all(helpers);
}

/// How long the compiling of all kernels may take.
const LIMIT: Duration = Duration::from_secs(1800);

/// Waits for the processes, and ends those that the limit finds: their kernels are compiled, or fail, in their trials.
fn await_all(mut helpers: Vec<Child>) {
    // Open as long as this process lives: its end ends the others.
    let pipes: Vec<_> = helpers.iter_mut().map(|helper| helper.stdin.take()).collect();
    let end = Instant::now() + LIMIT;
    for helper in &mut helpers {
        while Instant::now() < end && matches!(helper.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = helper.kill();
        let _ = helper.wait();
    }
    drop(pipes);
}

/// Ends this process when the one that started it is gone, however it went.
fn end_with_who_asked() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
}

/// Starts one process a core, or none where one could do it all as fast.
fn helpers(missing: usize, further: &[&str]) -> Vec<Child> {
    let cores = std::thread::available_parallelism().map_or(1, Into::into);
    let processes = missing.min(cores);
    if processes < 2 {
        return Vec::new();
    }
    let Ok(program) = std::env::current_exe() else { return Vec::new() };
    let start = |part| {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1)).args(further).env(COMPILE_SHARE, format!("{part}/{processes}"));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
    };
    (0..processes).filter_map(start).collect()
}

/// The part of the jobs that a helping process does.
#[derive(Debug, PartialEq)]
struct Share {
    part: usize,
    of: usize,
}

impl Share {
    fn of_this_process() -> Result<Option<Self>, String> {
        std::env::var(COMPILE_SHARE).ok().map(|text| Self::parse(&text)).transpose()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        let share = parts.map(|(part, of)| Share { part, of }).filter(|share| share.part < share.of);
        share.ok_or_else(|| {
            format!("{}={text}: expected PART/PARTS, like 0/4; it is for the gate's own use", COMPILE_SHARE)
        })
    }

    fn has(&self, job: usize) -> bool {
        job % self.of == self.part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_every_job_once() {
        let shares = ["0/3", "1/3", "2/3"].map(|text| Share::parse(text).unwrap());
        for job in 0..20 {
            assert_eq!(shares.iter().filter(|share| share.has(job)).count(), 1, "{job}");
        }
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for text in ["", "1", "3/3", "0/0", "a/b", "-1/2"] {
            assert!(Share::parse(text).unwrap_err().contains("PART/PARTS"), "{text}");
        }
    }
}
