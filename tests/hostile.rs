//! A gate for the functional tests: one candidate does its worst to the process it runs in and to those around it. What it
//! does stands in `HOSTILE`. Before it and behind it stand a right and a wrong one, whose verdicts it must not touch.
//!
//! What it does needs the C library; no kernel of a project has to.

use kernelgate::prelude::*;
use std::ffi::c_int;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

shape! { struct Vector { n: 1..=4096 } }

/// What a worker of an earlier protocol would have answered, and what one of today's would, but for the number.
const FORGED: [&str; 2] = [
    r#"{"outcome":{"verdict":"pass","cases":9},"fingerprint":null,"device_lost":false,"missing":false}"#,
    r#"{"trial":"triple::hostile::f32::correctness","nonce":1,"reply":{"outcome":{"verdict":"pass","cases":9},"fingerprint":null,"device_lost":false,"missing":false}}"#,
];

/// How often the candidate was called in this process.
static CALLS: AtomicUsize = AtomicUsize::new(0);

fn right(x: &Inputs<'_>, y: &mut Outputs<'_>) {
    y.slice::<f32>(0).iter_mut().zip(x.slice::<f32>(0)).for_each(|(y, x)| *y = 3.0 * x);
}

fn wrong(x: &Inputs<'_>, y: &mut Outputs<'_>) {
    y.slice::<f32>(0).iter_mut().zip(x.slice::<f32>(0)).for_each(|(y, x)| *y = 3.0 * x + 1.0);
}

/// Writes past every buffer of the standard library.
fn write(fd: c_int, mut text: &[u8]) {
    while !text.is_empty() {
        // SAFETY: the pointer and the length are those of a slice.
        let written = unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => text = &text[written..],
            _ => break,
        }
    }
}

fn forge(fd: c_int) {
    for forged in FORGED {
        write(fd, forged.as_bytes());
        write(fd, b"\n\x1e");
        write(fd, forged.as_bytes());
        write(fd, b"\n");
    }
}

/// Every file that this process has open, but for the standard streams.
fn open_files() -> Vec<c_int> {
    let names = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    numbers.filter(|&fd: &c_int| fd > 2).collect()
}

fn sleep_for_ever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// A second process that does nothing for a minute.
fn fork() -> bool {
    // SAFETY: the child calls nothing but functions that a forked process may call, and never returns.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::sleep(60);
            libc::_exit(0);
        }
        child > 0
    }
}

fn end(code: c_int) -> ! {
    // SAFETY: ends the process, which needs nothing.
    unsafe { libc::_exit(code) }
}

fn kill(process: c_int, signal: c_int) {
    // SAFETY: takes two numbers.
    unsafe { libc::kill(process, signal) };
}

fn parent() -> c_int {
    // SAFETY: takes nothing.
    unsafe { libc::getppid() }
}

fn hostile(x: &Inputs<'_>, y: &mut Outputs<'_>) {
    let is_first = CALLS.fetch_add(1, Ordering::SeqCst) == 0;
    let how = std::env::var("HOSTILE").unwrap_or_default();
    // Right, with noise.
    if how == "right" || how.starts_with("right_") {
        right(x, y);
    } else {
        wrong(x, y);
    }
    match how.as_str() {
        "right" | "wrong" => {}
        "right_prints" => (0..1000).for_each(|_| write(1, &[b'x'; 1023])),
        "right_prints_without_end" if is_first => (0..256).for_each(|_| write(1, &vec![b'x'; 1 << 20])),
        "right_prints_without_end" => {}
        "right_forges" => forge(1),
        "right_without_stdout" => {
            // SAFETY: closes a number.
            unsafe { libc::close(1) };
        }
        "right_leaves_a_process" => assert!(!is_first || fork()),
        "right_leaves_threads" if is_first => (0..50).for_each(|_| {
            std::thread::spawn(|| std::thread::sleep(Duration::from_secs(3)));
        }),
        "right_leaves_threads" => {}
        "right_prints_beside" if is_first => {
            std::thread::spawn(|| (0..1_000_000).for_each(|_| write(1, b"still here ")));
        }
        "right_prints_beside" => {}
        "right_changes_the_environment" => {
            // SAFETY: no other thread of this process reads its environment meanwhile.
            unsafe { std::env::set_var("KERNELGATE_SEED", "nonsense") };
        }
        "writes_past_its_output" => {
            right(x, y);
            let output = y.slice::<f32>(0);
            // SAFETY: none. It is what the band behind an output is for.
            unsafe { output.as_mut_ptr().add(output.len()).write(3.0) };
        }
        "writes_to_its_input" => {
            right(x, y);
            // SAFETY: none. Inputs are there to be read.
            unsafe { x.slice::<f32>(0).as_ptr().cast_mut().write(7.0) };
        }
        "overflows_its_stack" => {
            // Each call needs what the one behind it gives.
            #[expect(unconditional_recursion, reason = "it is to run out of stack")]
            fn deeper(depth: usize) -> usize {
                let frame = std::hint::black_box([depth; 64]);
                deeper(depth + 1) + frame[3]
            }
            write(2, deeper(0).to_string().as_bytes());
        }
        "sends_stdout_nowhere" => {
            // SAFETY: the path is a C string; a number is put in the place of another.
            unsafe { libc::dup2(libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY), 1) };
        }
        "opens_the_memory_of_its_parent" => {
            let memory = format!("/proc/{}/mem", parent());
            let _ = std::fs::OpenOptions::new().write(true).open(memory).map(|mut file| file.write(b"pass"));
        }
        "panic" => panic!("\u{1b}[2Jno | <b>good</b>"),
        "panic_twice" => {
            struct Again;
            impl Drop for Again {
                fn drop(&mut self) {
                    panic!("again");
                }
            }
            let _again = Again;
            panic!("once");
        }
        "exit" => std::process::exit(0),
        "exit_at_once" => end(0),
        "abort" => std::process::abort(),
        "segfault" => kill(std::process::id() as c_int, libc::SIGSEGV),
        "memory" => {
            let mut all = Vec::new();
            loop {
                all.push(vec![1_u8; 16 << 20]);
            }
        }
        "spin" => loop {
            std::hint::spin_loop();
        },
        "sleep" => sleep_for_ever(),
        "stop" => kill(std::process::id() as c_int, libc::SIGSTOP),
        "ignores_signals" => {
            // SAFETY: both handlers are the system's.
            unsafe {
                libc::signal(libc::SIGINT, libc::SIG_IGN);
                libc::signal(libc::SIGTERM, libc::SIG_IGN);
            }
            sleep_for_ever();
        }
        "leaves_the_session" => {
            // SAFETY: takes nothing.
            unsafe { libc::setsid() };
            sleep_for_ever();
        }
        "kills_its_parent" => kill(parent(), libc::SIGKILL),
        "terminates_its_parent" => kill(parent(), libc::SIGTERM),
        "kills_its_group" => kill(0, libc::SIGKILL),
        "forges" => forge(1),
        "forges_and_exits" => {
            forge(1);
            end(0);
        }
        "forges_and_waits" => {
            forge(1);
            sleep_for_ever();
        }
        "forges_everywhere" => open_files().into_iter().for_each(forge),
        "forges_everywhere_and_exits" => {
            open_files().into_iter().for_each(forge);
            end(0);
        }
        "prints_a_separator" => write(1, b"\x1e"),
        "prints_a_result" => {
            write(1, b"test triple::hostile::f32::correctness ... ok\n\ntest result: ok. 9 passed; 0 failed\n")
        }
        "closes_stdout" => {
            // SAFETY: closes a number.
            unsafe { libc::close(1) };
        }
        "closes_all" => open_files().into_iter().for_each(|fd| {
            // SAFETY: closes a number.
            unsafe { libc::close(fd) };
        }),
        "closes_all_and_sleeps" => {
            open_files().into_iter().for_each(|fd| {
                // SAFETY: closes a number.
                unsafe { libc::close(fd) };
            });
            sleep_for_ever();
        }
        "reads_stdin" => {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        }
        "forks_and_exits" => {
            fork();
            end(0);
        }
        "forks_and_waits" => {
            fork();
            sleep_for_ever();
        }
        "changes_folder" => std::env::set_current_dir("/proc").unwrap(),
        "writes_a_summary" => {
            let _ = std::fs::write(std::env::var("KERNELGATE_OUT").unwrap(), r#"{"version":2,"records":[]}"#);
        }
        other => panic!("HOSTILE=`{other}` stands for nothing"),
    }
}

fn main() -> ExitCode {
    let triple = Op::<Vector>::new("triple")
        .input("x", |s| [s.n])
        .output("y", |s| [s.n])
        .cost(|s, t| Cost { bytes: 2 * s.n * t.size(), flops: s.n })
        .perf(std::env::var_os("HOSTILE_TIMED").map(|_| Vector { n: 4096 }))
        .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = 3.0 * x));
    gate!(triple)
        .dtypes([F32])
        .candidate("a_right", Cpu::new::<f32>(|_, x, y| right(x, y)))
        .candidate("a_wrong", Cpu::new::<f32>(|_, x, y| wrong(x, y)))
        .candidate("hostile", Cpu::new::<f32>(|_, x, y| hostile(x, y)))
        .candidate("z_right", Cpu::new::<f32>(|_, x, y| right(x, y)))
        .candidate("z_wrong", Cpu::new::<f32>(|_, x, y| wrong(x, y)))
        .run()
}
