# The two commands: `make demo` and `make test`. Everything else is for those who change the code.
SHELL := /bin/sh
CARGO ?= cargo

.PHONY: help deps demo test test-servers bench-ingest five-minutes lint fmt fuzz audit clean-free

help: ## what can be made (this list)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

deps: ## check for what the build needs; install it where that is allowed, else name it
	@sh tools/deps.sh

demo: deps ## the whole loop on bundled traffic: a summary, plan.json and report.html
	@test -x target/release/turnaround || echo "First build: the solver (HiGHS) is C++ and compiled once; about 10 minutes on two cores, less on more."
	@$(CARGO) build --release -p cli
	@$(CARGO) run --release -p cli --quiet -- demo

test: deps ## every test that needs no server
	$(CARGO) build --release -p cli
	$(CARGO) test --release --workspace
	@echo "Left out: what needs a real InfluxDB (and Prometheus, where it is not installed). make test-servers builds and starts them."

# All packages at once: chosen one by one, they would be compiled again with other features.
test-servers: deps ## the tests that need a real InfluxDB and Prometheus; builds InfluxDB once (about six minutes)
	@command -v prometheus >/dev/null 2>&1 || { echo "Missing: prometheus (Debian: apt-get install prometheus)"; exit 1; }
	$(CARGO) build --release -p cli
	servers=$$(sh tests/servers/build.sh) && TURNAROUND_SERVERS="$${servers%/bin}" TURNAROUND_SERVERS_REQUIRED=1 \
	  sh -c '$(CARGO) test --release --workspace --lib influx:: && $(CARGO) test --release --workspace --test influx --test prometheus'

bench-ingest: deps ## one daemon beside 1,000 endpoints: core, memory, lateness; the parser beside others. Writes target/bench/ingest.json
	@$(CARGO) build --release -p cli && $(CARGO) build --release --workspace --examples
	@mkdir -p target/bench
	@target/release/examples/parser_speed | tee target/bench/parser.txt
	@tail -1 target/bench/parser.txt > target/bench/parser.json
	@target/release/examples/ingest_bench

five-minutes: deps ## from a Prometheus with two weeks of a 300-GPU fleet to its first plan, timed
	@command -v prometheus >/dev/null 2>&1 || { echo "Missing: prometheus and promtool (Debian: apt-get install prometheus)"; exit 1; }
	@$(CARGO) build --release -p cli && $(CARGO) build --release --workspace --examples
	@target/release/examples/five_minutes

lint: ## format and lints, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

fmt: ## format the code
	$(CARGO) fmt --all

fuzz: deps ## every parser, a minute each, on bytes of anybody's making (FUZZ_SECONDS=60)
	@sh tools/fuzz.sh

audit: ## licences, bans, sources and security advisories (needs cargo-deny and the network; for your own CI)
	@command -v cargo-deny >/dev/null 2>&1 || { echo "cargo-deny is missing: cargo install --locked cargo-deny"; exit 1; }
	$(CARGO) deny --all-features check advisories bans licenses sources

clean-free: ## free disk space: drop what older builds left, keep the compiled solver
	@rm -rf target/release/incremental target/doc target/tmp
	@du -sh target 2>/dev/null || true
