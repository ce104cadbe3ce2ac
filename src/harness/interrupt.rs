//! What is still done when somebody ends a run: results so far are kept, whoever sends the signal.

/// Does `last` when this process is told to end by SIGINT, SIGTERM or SIGHUP, and ends it with 128 and the signal's number, as a
/// shell shows it. A second signal while `last` is at work ends the process at once.
#[cfg(unix)]
pub fn keep_results(last: impl FnOnce(&str) + Send + 'static) {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    // Without a handler a signal ends the process as ever.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
    std::thread::spawn(move || {
        let mut last = Some(last);
        for signal in signals.forever() {
            let Some(last) = last.take() else { std::process::exit(128 + signal) };
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            std::thread::spawn(move || {
                last(name);
                std::process::exit(128 + signal);
            });
        }
    });
}

/// A signal ends the process as ever.
#[cfg(not(unix))]
pub fn keep_results(_last: impl FnOnce(&str) + Send + 'static) {}
