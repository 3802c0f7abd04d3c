# `make demo` and `make test` do all the set-up they need: a virtual environment in .venv, made on first use.
.POSIX:
.PHONY: demo test test-live coverage lint format docs bench-idle bench-kafka bench-lab bench-live bench-monitoring bench-segments bench-speed bench-state bench-stateful bench-statistics bench-stela faults hot-path scenarios soak

PYTHON = .venv/bin/python
PACKAGE = .venv/installed-package
TOOLS = .venv/installed-tools

# Word count on a real Spark cluster of two machines, for half a minute: too short for Java's second compiler to pay off.
QUICK_JAVA = -XX:+UseSerialGC -XX:TieredStopAtLevel=1

# The serial collector leaves some MB of dead objects where they are, most of the time, and the list of what lives in a
# heap counts them as arrays of int. With this it moves everything together, each time.
EXACT_HEAP = -XX:MarkSweepAlwaysCompactCount=1

demo: $(PACKAGE)
	@.venv/bin/penstock run examples/word_count.py --cluster standalone --machines 2 --seconds 30 \
	  --conf "spark.driver.extraJavaOptions=$(QUICK_JAVA)" --conf "spark.executor.extraJavaOptions=$(QUICK_JAVA)"

# Where Python is told to keep no bytecode, every process of a test compiles all of Penstock anew: dozens of them do
# nothing else for a second. Here it is kept, out of the way.
KEEP_BYTECODE = PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/.venv/bytecode

# Three processes side by side on two cores: tests with Spark wait about as long as they work. Nothing here needs the
# plugin of schemathesis, and each process would import it.
test: lint
	@$(KEEP_BYTECODE) $(PYTHON) -m pytest -p no:schemathesis -n 3 --dist loadgroup -m "not live"

# The longest tests with Spark: machines come, go and are lost under load. By themselves: beside others they take too long.
# The property tests follow, wherever they are, with six times as many examples.
test-live: $(TOOLS)
	@$(KEEP_BYTECODE) $(PYTHON) -m pytest -m live
	@$(KEEP_BYTECODE) $(PYTHON) -m pytest tests/property tests/unit -m hypothesis --hypothesis-profile thorough

# How much of the package the tests without Spark run, file by file; minutes. Tests with Spark run it in processes of its
# own, where nothing is counted.
coverage: $(TOOLS)
	@$(PYTHON) -m pytest -q tests/unit tests/property tests/contract --cov=penstock --cov-report=term:skip-covered

lint: $(TOOLS)
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m ruff format --check
	@$(PYTHON) -m mypy

format: $(TOOLS)
	@$(PYTHON) -m ruff check --fix
	@$(PYTHON) -m ruff format

# All benchmarks take ROUNDS=1: a look of a quarter of an hour at most, on two cores that do nothing else. Looks go to
# files of their own in benchmarks/results. Where a benchmark has parts, ONLY= chooses among them.

# What each live change does to a stream's output: without state, and with state beside plain Structured Streaming;
# about 20 minutes a round, three rounds (ROUNDS=1: without plain at locality.wait=0; ONLY=stateless, penstock or plain:
# one of them; only stateless has bars of its own, three minutes a round).
bench-live: $(TOOLS)
	@$(PYTHON) benchmarks/live.py $${ROUNDS:+--rounds $$ROUNDS} $${ONLY:+--only "$$ONLY"}

# Kills and other faults under load and in the middle of changes: three seeds with 34 faults each, about 15 minutes a seed
# (ROUNDS=1 is one seed with 24 faults). Prints its seeds: SEED=7 repeats from there, SEEDS=7,9 those; KILLS=10 is fewer
# faults a seed. CLUSTER=lab: one seed of 20 faults on machines that are apart, where whole machines are killed and links
# are down for 20 s; about half an hour, as root.
faults: $(TOOLS)
	@JDK_JAVA_OPTIONS="$(QUICK_JAVA)" $(PYTHON) benchmarks/faults.py $${SEED:+--seed $$SEED} $${SEEDS:+--seeds $$SEEDS} \
	  $${ROUNDS:+--rounds $$ROUNDS} $${KILLS:+--faults $$KILLS} $${CLUSTER:+--cluster $$CLUSTER}

# The controller on a fluid cluster in virtual time, with stela and with gain: days of load in seconds, a table of what
# held (ONLY=step-up,noise: those; STRATEGY=gain: with that strategy only; PLOTS=folder: a plot of each; TRACE=1: what
# happened in each). `make test` runs the same scenarios but for the thirty days, which `make test-live` runs.
scenarios: $(TOOLS)
	@$(PYTHON) tests/scenarios/run_scenarios.py $${ONLY:+--only "$$ONLY"} $${STRATEGY:+--strategy "$$STRATEGY"} \
	  $${PLOTS:+--plots "$$PLOTS"} $${TRACE:+--trace}

# A steady load with a change every minute: what grows? An hour, which is five rounds (ROUNDS=1: 12 minutes, without bars
# for growth; MINUTES=5 is shorter still). Table and plot go to benchmarks/results.
soak: $(TOOLS)
	@JDK_JAVA_OPTIONS="$(QUICK_JAVA) $(EXACT_HEAP)" $(PYTHON) benchmarks/soak.py $${ROUNDS:+--rounds $$ROUNDS} \
	  $${MINUTES:+--minutes $$MINUTES}

# What 100 operators on two machines cost while nothing flows; one round, about 10 minutes (MINUTES=1: six).
bench-idle: $(TOOLS)
	@$(PYTHON) benchmarks/idle.py $${ROUNDS:+--rounds $$ROUNDS} $${MINUTES:+--minutes $$MINUTES}

# Kafka as a source: exactly once through kills, and throughput beside a bare consumer; about 5 minutes (ROUNDS=1: two).
bench-kafka: $(TOOLS)
	@JDK_JAVA_OPTIONS="$(QUICK_JAVA)" $(PYTHON) benchmarks/kafka.py $${ROUNDS:+--rounds $$ROUNDS}

# Are the machines of a lab really apart? CPU, links, placement. Needs root. By estimate a quarter of an hour (ROUNDS=1:
# cpu five minutes, link two, placement four; ONLY=cpu,link,placement).
bench-lab: $(TOOLS)
	@JDK_JAVA_OPTIONS="$(QUICK_JAVA)" $(PYTHON) benchmarks/lab.py $${ROUNDS:+--rounds $$ROUNDS} $${ONLY:+--only "$$ONLY"}

# What monitoring costs at full speed; one round, about 10 minutes.
bench-monitoring: $(TOOLS)
	@$(PYTHON) benchmarks/monitoring.py $${ROUNDS:+--rounds $$ROUNDS}

# Stela's scale-out on the papers' topologies, beside the baselines, and scale-in; about 20 minutes an experiment, seven
# of them, three rounds each (ONLY=star,scale_in; ROUNDS=1: star, eight minutes, or those that ONLY names). The eighth,
# ONLY=congested, scales nothing: how much of its time a congested instance works, two minutes a topology and round.
# As root, on lab machines, with a page of their own: ONLY=lab_star (operators that work), lab_star_single (one bottleneck
# alone), lab_star_single_waits, lab_scale_in; about ten minutes each and round. ONLY=lab is all 19, one round, more than
# three hours; KEEP=folder keeps what was measured, so that it goes on after a cut. STRATEGIES=stela,storm: only those.
bench-stela: $(TOOLS)
	@JDK_JAVA_OPTIONS="$(QUICK_JAVA)" $(PYTHON) benchmarks/stela.py $${ROUNDS:+--rounds $$ROUNDS} \
	  $${ONLY:+--experiments $$ONLY} $${STRATEGIES:+--strategies $$STRATEGIES} $${KEEP:+--keep $$KEEP}

# Penstock beside plain Structured Streaming, PyFlink and Bytewax, which it installs into environments of their own; about
# two hours, three rounds (ONLY=throughput,latency,slots,idle,machine,goal,batch,growth; ROUNDS=1: the first five, with
# the engines that their bars need, or those that ONLY names: goal is by estimate three minutes; SET=shuffle=none: a
# setting of Penstock's runs, and not the results that are kept).
bench-speed: $(TOOLS)
	@$(PYTHON) benchmarks/speed.py $${ROUNDS:+--rounds $$ROUNDS} $${ONLY:+--parts $$ONLY} $${SET:+--set $$SET}

# What a channel's files cost by compression, small ones joined, split by key; five rounds, half a minute.
bench-segments: $(TOOLS)
	@$(PYTHON) benchmarks/segments.py $${ROUNDS:+--rounds $$ROUNDS}

# Where the time goes, by py-spy (WORKLOAD=word-count); one round, two minutes.
hot-path: $(TOOLS)
	@$(PYTHON) benchmarks/hot_path.py $${ROUNDS:+--rounds $$ROUNDS} $${WORKLOAD:+--workload $$WORKLOAD}

# Spark's state stores and their settings on word count; three rounds, about 15 minutes.
bench-state: $(TOOLS)
	@$(PYTHON) benchmarks/state_store.py $${ROUNDS:+--rounds $$ROUNDS}

# The experiments of Elastic Stateful Storm on lab machines, as root: the five phases with elasticity and without, changes
# by stop and start, stateful moves beside stateless ones, moves by size of state beside plain Structured Streaming, and
# counts through kills in the middle of moves; by estimate 2.5 hours (ROUNDS=1: the phases, shorter, 15 minutes, or the
# parts that ONLY names, 8 to 15 minutes each; ONLY=phases,restarts,moves,sizes,counts; MAPPING=fewest_moves; LINGER=12
# FACTOR=8: longer micro-batches, and phases that are long enough for them).
bench-stateful: $(TOOLS)
	@JDK_JAVA_OPTIONS="$(QUICK_JAVA)" $(PYTHON) benchmarks/stateful.py $${ROUNDS:+--rounds $$ROUNDS} \
	  $${ONLY:+--only "$$ONLY"} $${MAPPING:+--mapping "$$MAPPING"} \
	  $${LINGER:+--linger "$$LINGER"} $${FACTOR:+--factor "$$FACTOR"}

# A day of statistics in the store: its size and how fast it is read; about 10 minutes (ROUNDS=1: each reading once).
bench-statistics: $(TOOLS)
	@$(PYTHON) benchmarks/statistics_store.py $${ROUNDS:+--rounds $$ROUNDS}

# The reference pages, from the code, and the drawings.
docs: $(PACKAGE)
	@$(PYTHON) -m penstock.cli.reference docs
	@$(PYTHON) scripts/draw_architecture.py
	@$(PYTHON) scripts/draw_front_page.py

# What is needed to run Penstock, and in a second step what is needed to work on it. The stamp files are made last, so
# that an installation that was cut off is done again.
$(PACKAGE): pyproject.toml scripts/check-machine
	@python=$$(scripts/check-machine) && { [ -x $(PYTHON) ] || $$python -m venv .venv; }
	@echo "Installing Penstock into .venv (once, a few minutes) ..."
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable .
	@.venv/bin/penstock prepare || echo "Penstock goes on without it: Spark starts more slowly."
	@touch $@

$(TOOLS): $(PACKAGE)
	@echo "Installing what the tests need into .venv (once) ..."
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
