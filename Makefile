# `make setup` prepares .venv; `make test` runs every check; `make demo` shows the whole path.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.ready
PEERS := tests/interop/node_modules/.ready

.PHONY: setup peers lint format graph docs man test demo bench-throughput bench-latency bench-many bench-footprint bench-selecting bench-sorting bench-topics bench-federated bench-large bench-simulator bench-tables bench-spark bench-spark-nodes bench-convergence-200 bench-bus-routing bench-trace-bytes kill-campaign swarm sim-large long containment fuzz soak fleet-drill canaries mutants pacing federation constraints spark-deaths spark-version clean

setup: $(SETUP)

$(SETUP): pyproject.toml lab/pyproject.toml spark/pyproject.toml constraints.txt tools/setup.sh tools/sslyze.txt tools/java.py
	PYTHON='$(PYTHON)' sh tools/setup.sh
	@touch $@

# JavaScript peers of the interop tests; without npm, or when they cannot be had, those tests skip.
peers: $(PEERS)

$(PEERS): tests/interop/package.json tests/interop/package-lock.json
	@if ! command -v npm >/dev/null; then \
		echo "peers: no npm here; the tests that need rhea will skip"; \
	elif (cd tests/interop && npm ci --no-audit --no-fund --silent </dev/null); then \
		touch $@; \
	else \
		echo "peers: npm could not install them; the tests that need rhea will skip"; \
	fi

lint: setup
	$(BIN)/python tools/stages.py static

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Which packages import which, into docs/ARCHITECTURE.md; a test compares it with the code.
graph: setup
	$(BIN)/python tools/imports.py --write

# The API reference for Python, into build/reference/.
docs: setup
	$(BIN)/python tools/reference.py

# The manual page of the command line, into build/man/.
man: setup
	mkdir -p build/man
	$(BIN)/argparse-manpage --module holdfast.cli --function parser --prog holdfast --project-name holdfast \
		--manual-title "Holdfast" --format single-commands-section --output build/man/holdfast.1

test: setup peers
	$(BIN)/python tools/stages.py

demo: setup
	$(BIN)/holdfast demo

bench-throughput: setup
	$(BIN)/python benchmarks/macro/throughput.py

bench-latency: setup
	$(BIN)/python benchmarks/macro/latency.py

# Needs 10 GB of disk and a quarter of an hour; `many.py --help` names smaller forms.
bench-many: setup
	$(BIN)/python benchmarks/macro/many.py

bench-footprint: setup
	$(BIN)/python benchmarks/macro/footprint.py

bench-selecting: setup
	$(BIN)/python benchmarks/macro/selecting.py

bench-sorting: setup
	$(BIN)/python benchmarks/macro/sorting.py

bench-topics: setup
	$(BIN)/python benchmarks/macro/topics.py

bench-federated: setup
	$(BIN)/python benchmarks/macro/federated.py

bench-large: setup
	$(BIN)/python benchmarks/macro/large.py

bench-simulator: setup
	$(BIN)/python benchmarks/macro/simulator.py

bench-tables: setup
	$(BIN)/python benchmarks/macro/tables.py

# Spark's source against Spark's file source, and its sink against the client library; some minutes each.
bench-spark: setup
	$(BIN)/python benchmarks/macro/spark_ingest.py
	$(BIN)/python benchmarks/macro/spark_sink.py

# Spark over 1, 2 and 4 nodes, and with 1 and 2 executors; reading scales only as far as the machine's cores go.
bench-spark-nodes: setup
	$(BIN)/python benchmarks/macro/spark_nodes.py

bench-trace-bytes: setup
	$(BIN)/python benchmarks/macro/trace_bytes.py

# Sixteen nodes; about eight minutes. `--quick` takes one, `--parts` names what is measured.
bench-bus-routing: setup
	$(BIN)/python benchmarks/macro/bus_routing.py

bench-convergence-200: setup
	$(BIN)/python benchmarks/macro/convergence_200.py

# About an hour on two cores; its `--help` names shorter forms.
kill-campaign: setup
	$(BIN)/python -m holdfast_lab.real.campaign --cycles 1000 --lanes 2

# Executors, Python workers, driver and node of a Spark job killed, in each of so many runs: a minute each on two idle
# cores. `make spark-deaths RUNS=10 SEED=7`; one that fails is run again with RUNS=1 and its seed.
spark-deaths: RUNS ?= 200
spark-deaths: setup
	$(BIN)/python -m holdfast_lab.real.spark_deaths --runs $(RUNS) --seed $(SEED)

# The tests of the Spark source and jobs on another version of Spark, in an environment of its own (1 GB, build/).
VERSION ?= 4.2.0

spark-version: setup
	$(PYTHON) -m venv build/spark-$(VERSION)
	build/spark-$(VERSION)/bin/python -m pip install --quiet setuptools wheel
	build/spark-$(VERSION)/bin/python -m pip install --quiet -e '.[dev,fleet]' -e './spark[delta,postgresql]' -e ./lab \
		'pyspark==$(VERSION)'
	build/spark-$(VERSION)/bin/python -m pytest tests/pipeline -q

# `make swarm SEEDS=200 FIRST=5001`; a seed that fails prints the command that runs it again.
SEEDS ?= 2000
FIRST ?= 1

swarm: setup
	$(BIN)/holdfast sim swarm --seeds $(SEEDS) --first-seed $(FIRST)

# Networks of 200 and 300 nodes, minutes each: what the stage `sim` leaves out. pyproject.toml ends a test that takes
# four minutes as one that hangs; here one may take an hour.
sim-large: setup
	$(BIN)/python -m pytest tests/sim -q -s -m "sim and slow" -o faulthandler_timeout=3600

# What the stages `unit` and `core` take a day's part of: every seed, LONG times as many examples of each property
# (tests/support/today.py), and a node's invariants after every turn. Hours; `make long IN=tests/core/test_groups.py` less.
# `make long MARKS=sim` is all of another stage's tests; interop, spark, crash and fuzz likewise.
IN ?= tests
MARKS ?= not interop and not spark and not crash and not sim and not fuzz and not slow

long: setup
	$(BIN)/python -m pytest $(IN) -q --long --numprocesses=2 --dist=worksteal -o faulthandler_timeout=3600 \
		-m "$(MARKS)"

# A failure at each call site below a node's dispatcher, one after the other, in every scenario; half an hour.
containment: setup
	$(BIN)/python -m pytest tests/core/test_containment.py -q -m slow -o faulthandler_timeout=3600

# `make fuzz STREAMS=100000 SEED=7`; without a seed one is drawn, and printed. First against a node in memory (a quarter
# of an hour for 100,000 on two cores), then against processes; what fails is printed with the command that says it again.
STREAMS ?= 20000
SEED ?= 0

fuzz: setup
	$(BIN)/python tests/fuzz/in_process.py --seed $(SEED) --streams $(STREAMS)
	$(BIN)/python -m pytest tests/fuzz -m fuzz -q -s --fuzz-seed $(SEED) --fuzz-streams $(STREAMS)

# The traffic paper's experiment: 2,066 runs on Spark, then acceptance table, policies, sizes of bursts, the VPN and
# figures, from their table into docs/results. It says before its first run how long it will take, by the processor time
# of each run as the sweep's file has it: half an hour of two cores; exit code 1 where a line of the acceptance table
# does not hold. It goes on where it was ended, by the runs that are in TABLE; after a change of the simulator or of a
# policy remove that. `make pacing SWEEP=mine.toml TABLE=build/mine` runs another sweep.
SWEEP ?= benchmarks/sweeps/traffic.toml
TABLE ?= build/traffic

pacing: setup
	$(BIN)/holdfast pipeline sweep $(SWEEP) --out $(TABLE) --resume --master 'local[*]'
	$(BIN)/holdfast pipeline report traffic $(TABLE) --page docs/results/traffic-control.md \
		--picture docs/results/traffic-control.png

# Bindings that travel, over a model of the network and on whole nodes: missed, doubled, corrupted tables, copies and
# control bytes, into docs/results; four minutes of a core with NODES=60. Exit code 1 where a run does not end well, or
# a rule taken out is not missed.
federation: setup
	$(BIN)/python -m holdfast_lab.bindings --seeds $(or $(RUNS),60) --page docs/results/federation.md
	$(BIN)/python -m holdfast_lab.federated --seeds $(or $(NODES),200) --page docs/results/federation.md

# An honest load beside hostile clients of every kind, on a real node; a JSON report. `make soak MINUTES=2` is short.
MINUTES ?= 60

soak: setup
	$(BIN)/python benchmarks/macro/soak.py --minutes $(MINUTES)

# A fleet under traffic, from enrolment to upgrade (docs/drills.md); minutes. `make fleet-drill SITES=6` is short.
SITES ?= 40

fleet-drill: setup
	$(BIN)/python -m pytest tests/fleet/test_drill.py -q -s -m slow --sites $(SITES) -o faulthandler_timeout=3600

# Each planted defect must pass the unit tests and be found by the simulator; minutes for each.
canaries: setup
	$(BIN)/python tools/canaries.py

# Mistakes planted one at a time, and who finds them; hours, and goes on where it was ended (docs/mutants.md).
COUNT ?= 200

mutants: setup
	$(BIN)/python tools/mutants.py --count $(COUNT) --seed $(SEED)

# After a deliberate upgrade whose checks passed.
constraints: setup
	@{ sed -n '/^#/p' constraints.txt; \
	   $(BIN)/python -m pip freeze --all --exclude-editable | grep -vE '^(pip|holdfast)==|@'; } > constraints.new
	@mv constraints.new constraints.txt

clean:
	rm -rf .venv .checks .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	rm -rf tests/interop/node_modules src/*.egg-info lab/src/*.egg-info spark/src/*.egg-info lab/build spark/build
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
