//! Processes that end with their parent, and the children that a candidate leaves behind.

use rustix::process::{Pid, Signal};
use std::fs;

/// The process that started this one; 0 if it is gone.
pub fn parent() -> u32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_pid().cast_unsigned())
}

/// Has the system kill this process when the thread that started it ends, and give it the orphans among its descendants.
pub fn end_with_parent() {
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
}

/// Kills this process. Unlike an exit it runs nothing that a candidate may have left to run, and never looks good.
pub fn end_now() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    std::process::abort()
}

/// Kills the children of this process and says how many there were. Where the system does not list them, none are found.
pub fn end_children() -> usize {
    let mut ended = 0;
    // Those of a killed child come next.
    for _ in 0..100 {
        let children = children();
        if children.is_empty() {
            break;
        }
        for child in children {
            let _ = rustix::process::kill_process(child, Signal::KILL);
            let _ = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
            ended += 1;
        }
    }
    ended
}

fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers = |list: String| -> Vec<i32> { list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect() };
    lists.flat_map(numbers).filter_map(Pid::from_raw).collect()
}

/// Ends this process as another one ended.
pub fn end_like(status: std::process::ExitStatus) -> ! {
    use std::os::unix::process::ExitStatusExt as _;
    if let Some(code) = status.code() {
        std::process::exit(code);
    }
    let number = status.signal().unwrap_or(9);
    // The standard library takes the first fault for a stack overflow, and only then lets the next one through.
    for _ in 0..2 {
        if let Some(signal) = Signal::from_named_raw(number) {
            let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
        }
    }
    // The signal is one that this process ignores.
    std::process::exit(128 + number)
}
