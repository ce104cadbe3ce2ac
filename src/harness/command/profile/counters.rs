//! Hardware counters of the kernels of a profile: the same once more, under Nsight Compute.

use crate::device::trace::HOST_SPANS;
use crate::harness::terminal::note;
use crate::profile::{Part, ProfileRun, ncu};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Launches of each kernel that Nsight Compute looks at, and of all of them at the most: each is run several times.
const EACH: usize = 3;
const COUNTED: usize = 32;

/// Adds the counters of Nsight Compute to a profile of what this command runs, or why there are none.
pub fn counted(run: &mut ProfileRun, ncu: &Path, command: &[OsString], limit: Duration) {
    run.notes.push(format!("for Nsight Systems: {}", ncu::nsys(command)));
    // `operator::candidate kernel`, and the operator's name alone where the kernel has it too.
    let of_gpu = run.source != HOST_SPANS;
    let kernel = |part: &Part| match part.name.split_once(' ') {
        Some((_, name)) => Some(name.to_owned()),
        None => part.name.split_once("::").filter(|_| of_gpu).map(|(operator, _)| operator.to_owned()),
    };
    let names: Vec<String> = run.kernels.iter().filter_map(kernel).collect();
    if names.is_empty() {
        run.notes.push("Nsight Compute: there is no kernel of a GPU to count".into());
        return;
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    match ncu::count(ncu, command, &all, COUNTED.min(EACH * all.len()), limit) {
        Ok(kernels) => {
            let ours = |name: &str| {
                let of = |part: &&Part| kernel(part).is_some_and(|own| ncu::function(&own) == ncu::function(name));
                run.kernels.iter().find(of).and_then(|part| part.bound)
            };
            run.counters = Some(ncu::beside(kernels, ours));
        }
        Err(why) => {
            note(format_args!("Nsight Compute: {why}"));
            run.notes.push(format!("no hardware counters: {why}"));
        }
    }
}

/// A command line that profiles with these arguments as this process would; a gate is asked by `flag`.
pub fn command_of(flag: &str, arguments: impl IntoIterator<Item = String>) -> Vec<OsString> {
    let mut words: Vec<OsString> = program(std::env::args_os().next()).into_iter().collect();
    words.extend(std::env::args_os().nth(1).filter(|first| first == flag));
    words.push("profile".into());
    words.extend(arguments.into_iter().map(OsString::from));
    words
}

fn program(called: Option<OsString>) -> Option<OsString> {
    std::env::current_exe().ok().map(OsString::from).or(called)
}

/// The command line of this process without what makes it more than a run.
pub fn plain_command(mut arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    const ALONE: [&str; 4] = ["--apply", "--json", "--ncu", "--trace-all"];
    const WITH_VALUE: [&str; 4] = ["--trace", "--out", "--against", "--ncu-limit"];
    let mut kept: Vec<OsString> = program(arguments.next()).into_iter().collect();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        if WITH_VALUE.contains(&name) {
            if name.len() == text.len() {
                arguments.next();
            }
        } else if !ALONE.contains(&name) {
            kept.push(argument);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counted_command_does_nothing_but_run() {
        let words = [
            "gate",
            "--command",
            "profile",
            "softmax",
            "--trace",
            "t",
            "--trace-all",
            "--ncu=/x/ncu",
            "--ncu-limit",
            "9",
            "--apply",
            "--out=o",
            "--hot",
        ];
        let kept = plain_command(words.iter().map(OsString::from));
        assert_eq!(kept[1..], ["--command", "profile", "softmax", "--hot"]);
    }
}
