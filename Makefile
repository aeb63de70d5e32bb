# The two commands: `make demo` and `make test`. Everything else is for those who change the code.
SHELL := /bin/sh
CARGO ?= cargo

.PHONY: help deps demo test lint fmt fuzz audit clean-free

help: ## what can be made (this list)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

deps: ## check for what the build needs; install it where that is allowed, else name it
	@sh tools/deps.sh

demo: deps ## the whole loop on bundled traffic: a summary, plan.json and report.html
	@test -x target/release/turnaround || echo "First build: the solver (HiGHS) is C++ and compiled once; about 10 minutes on two cores, less on more."
	@$(CARGO) build --release -p cli
	@$(CARGO) run --release -p cli --quiet -- demo

test: deps ## every test
	$(CARGO) build --release -p cli
	$(CARGO) test --release --workspace

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
