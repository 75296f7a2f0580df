# One command each for what a newcomer and CI do; `make help` lists them.
# Everything is set up by the targets themselves, in .venv and target.

PYTHON ?= python3.11
FUZZ_SECONDS ?= 900
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/.stamps
S3S    := 0.14.1
RUST   := $(shell find crates -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
SOURCES := $(shell find python/anyrecord -name '*.py' -o -name '*.pyi' -o -name py.typed)
CROSS  := target/cross
# When each part of `make test` begins and ends: $(call begin,NAME) and $(call end,NAME) in a recipe.
MINUTES := $(STAMPS)/minutes
begin   = echo "$$(date +%s) begin $(1)" >> $(MINUTES)
end     = echo "$$(date +%s) end $(1)" >> $(MINUTES)

.PHONY: help demo test check bench bench-all bench-loaders bench-remote fuzz coverage loom valgrind crash-test clean docs lint rust-tests python-tests \
        instructions instructions-baseline parts wheel wheel-smoke wheel-test test-aarch64 check-targets

help:  ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-21s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(STAMPS)/build  ## build everything and show the main job on data made on the spot
	@$(BIN)/python examples/demo.py

test:  ## set up everything, then run all checks and tests; says at its end how many minutes each part took
	@mkdir -p $(STAMPS) && rm -f $(MINUTES) && $(call begin,everything)
	@$(MAKE) --no-print-directory parts; status=$$?; \
	[ $$status -ne 0 ] || $(call end,everything); \
	$(PYTHON) tests/minutes.py $(MINUTES); exit $$status

parts: lint rust-tests loom instructions wheel-smoke $(STAMPS)/frameworks $(STAMPS)/s3s-$(S3S) $(STAMPS)/redis python-tests

check: lint rust-tests  ## the inner loop: no frameworks
	$(BIN)/python -m pytest -q -m "not framework"

bench: $(STAMPS)/bench  ## speed beside the peers, in less than 20 minutes; BENCH=--quick: in minutes
	$(BIN)/python -m benches $(BENCH)

bench-all: $(STAMPS)/bench  ## every benchmark that this machine can run, for hours; lists all goals, writes README and docs; large downloads
	@$(MAKE) --no-print-directory --keep-going $(STAMPS)/frameworks $(STAMPS)/loader-peers $(STAMPS)/s3s-$(S3S) $(STAMPS)/redis || \
	    echo "not everything could be installed: benchmarks that need it are left out"
	$(BIN)/python -m benches everything $(BENCH)

bench-loaders: $(STAMPS)/frameworks $(STAMPS)/loader-peers  ## a shuffled epoch in PyTorch beside other loaders; large downloads, most of an hour
	$(BIN)/python -m benches loaders $(BENCH)

bench-remote: $(STAMPS)/build $(STAMPS)/s3s-$(S3S) $(STAMPS)/loader-peers  ## an epoch from an object store and uploads to it, beside other libraries; large downloads
	$(BIN)/python -m benches remote upload $(BENCH)

fuzz: $(STAMPS)/build $(STAMPS)/fuzz  ## attack every parser with AddressSanitizer for FUZZ_SECONDS (900) altogether
	@command -v rustup >/dev/null || { echo "rustup is missing: install Rust from https://rustup.rs"; exit 1; }
	@rustup run nightly rustc --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal
	@command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked
	$(BIN)/python fuzz/run.py run --seconds $(FUZZ_SECONDS)

coverage:  ## lines of the formats and codecs that the fuzz corpora reach; fails below 95 %
	@rustup component list --installed | grep -q llvm-tools || rustup component add llvm-tools
	$(PYTHON) fuzz/coverage.py --missed

instructions: $(STAMPS)/build  ## count the instructions of the hot paths; fails above 3 % more than the committed baseline
	@$(call begin,instructions)
	$(BIN)/python -m benches.baseline
	@$(call end,instructions)

instructions-baseline: $(STAMPS)/build  ## make the instructions that the code at hand needs the baseline
	$(BIN)/python -m benches.baseline --write

loom: $(STAMPS)/build  ## run the concurrent parts of the core in every order that their threads can run in
	@$(call begin,loom)
	cargo run -p anyrecord-models --locked --quiet
	@$(call end,loom)

crash-test: $(STAMPS)/build  ## kill writers at each call that changes files, and let each call fail; some minutes
	$(BIN)/python -m checks kills faults

# The tests of memory maps, signals, storages, reader and writer, one thread at a time. The others try every byte of a file,
# or need system calls that valgrind does not know well (io_uring): they would take hours, or fail. No errors are suppressed.
# Some tests leak on purpose; `python -m checks leaks` counts leaks.
valgrind: $(STAMPS)/build  ## look for reads of memory that is not ours, in the Rust tests
	PROPTEST_CASES=4 cargo test -p anyrecord --locked --lib --quiet --config "target.'cfg(unix)'.runner='valgrind --quiet \
	    --error-exitcode=9 --leak-check=no'" -- --test-threads=1 \
	    storage:: cache:: bytes:: hash:: pool:: parallel:: writer:: budget:: reader:: \
	    --skip everything_is_read_about_once --skip a_hundred_thousand --skip no_slot_is_held_by_two --skip uring \
	    --skip direct --skip parts_that_grow
	@echo "valgrind: 0 errors"

docs: $(STAMPS)/docs  ## build the documentation site in site/; every warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html; search needs a web server: $(PYTHON) -m http.server -d site"

wheel: $(STAMPS)/wheel  ## build the wheel into target/wheels

wheel-smoke: $(STAMPS)/wheel  # install the wheel into empty environments and try the main things
	@$(call begin,wheel in empty environments)
	$(BIN)/python checks/wheel.py target/wheels/anyrecord-*.whl --python 3.12 3.13 --if-there
	@$(call end,wheel in empty environments)

wheel-test: $(STAMPS)/wheel  ## run tests against the installed wheel, in empty environments of Python 3.11, 3.12 and 3.13; minutes
	$(BIN)/python checks/wheel.py target/wheels/anyrecord-*.whl --python 3.11 3.12 3.13 --tests

test-aarch64: $(CROSS)/.stamp  ## compile the core for aarch64 Linux and run its tests with qemu; downloads 200 MB, takes long
	$(PYTHON) checks/targets.py $(CROSS) test

check-targets: $(CROSS)/.stamp  ## check that the core compiles for aarch64 Linux, macOS and Windows
	$(PYTHON) checks/targets.py $(CROSS) check

clean:  ## remove everything that was built
	rm -rf $(VENV) target build site python/anyrecord/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis

lint: $(STAMPS)/build $(STAMPS)/remote
	@$(call begin,lint)
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest anyrecord._core --ignore-missing-stub --mypy-config-file pyproject.toml
	@$(call end,lint)

rust-tests: $(STAMPS)/build
	@$(call begin,Rust tests)
	cargo test -p anyrecord --locked --quiet
	@$(call end,Rust tests)

# Tests that start Ray have a process of their own: started by one that has imported all other frameworks, some of Ray's
# processes did not begin.
WITH_RAY := tests/shard_stores tests/reliability python/anyrecord/ray python/anyrecord/_shard_store_ray.py docs/sharding.md

# Frameworks have a process of their own: one that has loaded them forks slowly and has threads of theirs. Two processes
# run at the same time, one on each core. The output of the second one is shown when both have ended.
python-tests: $(STAMPS)/frameworks $(STAMPS)/docs $(STAMPS)/wheel $(STAMPS)/remote $(STAMPS)/s3s-$(S3S) $(STAMPS)/redis
	@echo "tests of remote files and of frameworks run meanwhile; their output follows"
	@($(call begin,remote files (beside Python tests)); \
	    $(BIN)/python -m pytest -q -p no:cacheprovider -m "not framework" tests/remote; remote=$$?; \
	    $(call end,remote files (beside Python tests)); $(call begin,frameworks (beside Python tests)); \
	    $(BIN)/python -m pytest -q -p no:cacheprovider -m framework $(WITH_RAY); ray=$$?; \
	    $(BIN)/python -m pytest -q -p no:cacheprovider -m framework $(WITH_RAY:%=--ignore=%); frameworks=$$?; \
	    $(call end,frameworks (beside Python tests)); exit $$((remote || ray || frameworks))) > $(STAMPS)/second.log 2>&1 & second=$$!; \
	$(call begin,Python tests); \
	$(BIN)/python -m pytest -q -m "not framework" --ignore=tests/remote; first=$$?; \
	$(call end,Python tests); \
	wait $$second; status=$$?; cat $(STAMPS)/second.log; exit $$((first || status))

# The virtual environment; `cargo` first, because everything needs it.
$(STAMPS)/venv: requirements/dev.txt
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust from https://rustup.rs, then run make again"; exit 1; }
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: install Python 3.11 or newer, or run make PYTHON=python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/build: $(STAMPS)/venv $(RUST) pyproject.toml $(wildcard anyrecord.data/*/*)
	@$(call begin,build)
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --locked --quiet
	@$(call end,build)
	@touch $@

# The wheel as users get it, in target/wheels. It compiles nothing that the build above has compiled.
$(STAMPS)/wheel: $(STAMPS)/build $(SOURCES) README.md
	rm -f target/wheels/anyrecord-*.whl
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin build --release --locked --quiet -i $(abspath $(BIN))/python --out target/wheels
	@touch $@

# Compilers for other systems, and qemu, which runs programs for another processor.
$(CROSS)/.stamp: requirements/cross.sh
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust from https://rustup.rs, then run make again"; exit 1; }
	sh requirements/cross.sh $(CROSS)
	@touch $@

# The peers that benchmarks run beside, and what draws pictures of the results.
$(STAMPS)/bench: $(STAMPS)/build requirements/bench.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/bench.txt
	@touch $@

# Other loaders, for local files and for object stores. They need an environment of their own, which the benchmarks look
# for there. FFCV has to be compiled: it is measured if it is there.
$(STAMPS)/loader-peers: $(STAMPS)/venv requirements/loader-peers.txt
	$(PYTHON) -m venv $(VENV)/loader-peers
	$(VENV)/loader-peers/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/loader-peers.txt
	@touch $@

# The object stores that tests start on 127.0.0.1, and another client for them.
$(STAMPS)/remote: $(STAMPS)/venv requirements/remote.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/remote.txt
	@touch $@

# A compiled S3 server. It takes minutes to build; only `make test` and `make bench-remote` need it.
$(STAMPS)/s3s-$(S3S): $(STAMPS)/venv
	@$(call begin,S3 server)
	cargo install s3s-fs --version $(S3S) --locked --features binary --root $(VENV) --quiet
	@$(call end,S3 server)
	@touch $@

# The Redis server that tests of shards start, if the system has none.
$(STAMPS)/redis: $(STAMPS)/venv requirements/redis_server.sh
	@sh requirements/redis_server.sh $(VENV)
	@touch $@

# The documentation site. Its sources are read, not imported, so nothing has to be built.
$(STAMPS)/docs: $(STAMPS)/venv requirements/docs.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/docs.txt
	@touch $@

# libFuzzer for Python.
$(STAMPS)/fuzz: $(STAMPS)/venv requirements/fuzz.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/fuzz.txt
	@touch $@

# The originals and the frameworks that the tests run against. Large; only `make test` needs them.
$(STAMPS)/frameworks: $(STAMPS)/build requirements/frameworks.txt
	@$(call begin,downloads)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/frameworks.txt
	@$(call end,downloads)
	@touch $@
