//! The process between a gate and its worker: the worker's parent, which a candidate can kill without harm to the gate.

use super::{Role, lifetime};
use crate::core::environment;
use std::fs::File;
use std::process::Command;

/// Starts the worker, waits for it, kills the processes that it leaves behind, and ends as it did.
pub fn keep() -> ! {
    lifetime::end_with_parent();
    let started = std::env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        command.args(std::env::args_os().skip(1)).env(environment::WORKER, Role::Worker.for_child());
        let child = command.spawn()?;
        // The worker's streams end with the worker.
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        rustix::stdio::dup2_stdout(&nothing)?;
        rustix::stdio::dup2_stderr(&nothing)?;
        Ok(child)
    });
    match started.and_then(|mut worker| worker.wait()) {
        Ok(status) => {
            lifetime::end_children();
            lifetime::end_like(status)
        }
        Err(_) => lifetime::end_now(),
    }
}
