#!/usr/bin/env bash
# Everything a change must pass, on any machine: a Rust toolchain, a C compiler and Python 3 are enough.
# Uses cargo-nextest where it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }

step "CUDA compilers"
bash ci/setup-cuda.sh

step "format"
cargo fmt --all --check
# Modules that a macro declares are not found by cargo fmt.
rustfmt --check --edition 2024 src/ops/*.rs src/ops/*/mod.rs

step "lints: everything"
# In the profile of the tests, which then find build scripts and derive macros built.
cargo clippy --release --quiet --all-targets -- -D warnings

step "lints of the gate alone and of the gate without CUDA, documentation: one core each, so side by side"
# Runs a command in a target folder of its own, since cargo lets one command at a time into one; it begins with the
# dependencies that were checked above.
beside() {
    local folder="$PWD/target/beside/$1"
    shift
    mkdir -p "$folder/release"
    tar -C target/release -c --exclude='*kernelgate*' .fingerprint build deps | tar -C "$folder/release" -x
    CARGO_TARGET_DIR="$folder" "$@"
}
rm -rf target/beside
# With a test beside them, dependencies keep the features that the first line built them with.
beside gate cargo clippy --release --quiet --lib --test layers --no-default-features --features cuda-13 -- -D warnings &
jobs=($!)
beside plain cargo clippy --release --quiet --lib --test layers --no-default-features -- -D warnings &
jobs+=($!)
# No target is an example (tests/examples.rs runs them), but asking for them keeps the dependencies' features.
RUSTDOCFLAGS="-D warnings" beside documentation cargo doc --release --quiet --no-deps --lib --examples &
jobs+=($!)
failed=0
for job in "${jobs[@]}"; do wait "$job" || failed=1; done
rm -rf target/beside
[ "$failed" = 0 ]

step "tests"
export KERNELGATE_REQUIRE=nvrtc
# Two a core: those of the harness wait for processes and time limits most of the time.
RUST_TEST_THREADS=$((2 * $(nproc))) cargo test --release --quiet

step "JUnit XML by another project's parser"
bash ci/formats.sh

if cargo nextest --version >/dev/null 2>&1; then
    step "a part of the gate under nextest: a process a trial, one summary"
    # All of it ran above, in one process.
    cargo nextest run --release --test gate -E 'test(/^(silu|gemv)::/)'
fi

step "the oldest Rust that is promised"
promised="$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)"
if [[ "$(rustc --version)" == "rustc $promised"* ]]; then
    echo "all of this ran on it: $(rustc --version)"
elif rustup run "$promised" cargo --version >/dev/null 2>&1; then
    CARGO_TARGET_DIR="$PWD/target/oldest" rustup run "$promised" cargo check --quiet --all-targets
else
    echo "not tried: rustup toolchain install $promised"
fi

step "the package: complete, and within the registry's limit"
cargo package --quiet --no-verify --allow-dirty
version="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)"
size="$(stat -c %s "target/package/kernelgate-$version.crate")"
echo "$size bytes"
if [ "$size" -gt 5000000 ]; then
    echo "the packed crate is over 5 MB: see \`include\` in Cargo.toml" >&2
    exit 1
fi
# Every file that the code includes must be in it.
unpacked="$(mktemp -d)"
python3 ci/packed.py "target/package/kernelgate-$version.crate" "$unpacked"
rm -r "$unpacked"

step "a downstream project"
# In the build of the functional tests, which its own settings of cargo are for.
(export CARGO_TARGET_DIR="$PWD/target" && cd fixtures/user && cargo test --release --quiet)

step "all good"
