//! The `kernelgate` command.

fn main() -> std::process::ExitCode {
    kernelgate::cli::main()
}
