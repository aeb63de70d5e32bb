#!/bin/sh
# Runs every fuzz target for FUZZ_SECONDS (60) seconds: guided by coverage where a nightly compiler is installed, else with a seeded mutator.
# What makes a target fail is kept in target/fuzz/found; a corpus that grew, in target/fuzz/corpus. Arguments name targets; none means all.
set -eu
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}
host=$(rustc -vV | sed -n 's/^host: //p')
all="config discovery exposition influx_csv line_protocol plan_file prometheus_answer recording traces"
found=target/fuzz/found
mkdir -p "$found"

if [ -z "${FUZZ_PLAIN:-}" ] && cargo +nightly --version >/dev/null 2>&1; then
    # The flags of cargo-fuzz, without its address sanitizer: our code is safe Rust, and so is nearly all it calls.
    flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
    flags="$flags -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
    # By name: the plain runner has no fuzzer in it to answer what the flags insert.
    bins=$(for name in ${*:-$all}; do echo "--bin fuzz_$name"; done)
    # shellcheck disable=SC2086
    RUSTFLAGS="$flags" cargo +nightly build --release --manifest-path fuzz/Cargo.toml --target "$host" --target-dir target/fuzz $bins
    for name in ${*:-$all}; do
        corpus=target/fuzz/corpus/$name
        mkdir -p "$corpus"
        echo "$name: $seconds s"
        # An input may take 10 s, the process 1 GiB: more is a fault.
        "target/fuzz/$host/release/fuzz_$name" "$corpus" "fuzz/seeds/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=65536 \
            -artifact_prefix="$found/$name-" -print_final_stats=1 2>"target/fuzz/$name.log" || { tail -n 40 "target/fuzz/$name.log"; exit 1; }
        grep -E 'number_of_executed_units|peak_rss_mb|DONE' "target/fuzz/$name.log" | tail -n 3
    done
else
    echo "No nightly compiler: the targets run on mutations that nothing guides. (rustup toolchain install nightly)"
    cargo build --release --manifest-path fuzz/Cargo.toml --no-default-features --target-dir target/fuzz --bin plain
    seeds=$(pwd)/fuzz/seeds
    runner=$(pwd)/target/fuzz/release/plain
    (cd "$found" && "$runner" "$seconds" "$seeds" "$@")
fi
