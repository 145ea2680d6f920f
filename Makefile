# Every target sets up what it needs into .venv/; a second call sets nothing up again.
PYTHON ?= python3
PYTHONS ?= 3.11 3.12 3.13 3.14
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
SPARK_STAMP := $(VENV)/.spark-setup-done
PEERS_STAMP := $(VENV)/.peers-setup-done
PORT ?= 9092
WORKERS ?= 2
MINUTES ?= 10
EXAMPLES ?= 2000
KAFKA ?= localhost:9092
PYTEST := $(BIN)/pytest -q
QUICK := "not slow and not interop"
QUICK_TESTS := tests/unit tests/contract tests/test_tidy.py
# What touches the ports: the rest computes, or runs in a simulated world, and does the same with and without them.
FALLBACK_TESTS := tests/contract tests/cluster tests/unit/runtime tests/unit/log tests/unit/broker tests/unit/testing
SIMULATED_TESTS := $(addprefix tests/unit/broker/,three_brokers test_several_brokers.py test_authentication.py test_throttling.py)
# In a process of their own: PySpark, a JVM and clients that are kept stay in it to its end.
SPARK_TESTS := tests/spark tests/unit/spark
COMPILE := $(BIN)/pip-compile -q --strip-extras --generate-hashes --allow-unsafe \
  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links
.DEFAULT_GOAL := help
.PHONY: help setup up test quick fallbacks lint docs bench bench-quick bench-compaction golden sim soak properties dist lock interop-setup clean

help:  ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# In words of every Python, so that an old one can say it.
RIGHT_PYTHON := import sys; sys.version_info >= (3, 11) or sys.exit("Moldau needs Python 3.11 or newer, and $(PYTHON) is \
  %d.%d: name another one, as in make setup PYTHON=python3.12" % sys.version_info[:2])

$(STAMP): requirements/dev.lock pyproject.toml
	@$(PYTHON) -c '$(RIGHT_PYTHON)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(STAMP)  ## make .venv with Moldau and its tools

up: setup  ## run a broker on localhost:9092 (PORT=...) until Ctrl-C
	@$(BIN)/moldau up --port $(PORT)

test: lint interop-setup spark-setup  ## lint, types, import contracts, all tests that end within 30 minutes on 2 cores
	$(PYTEST) -n $(WORKERS) --dist loadfile -m "not long" --ignore tests/spark --ignore tests/unit/spark tests
	$(PYTEST) -n $(WORKERS) --dist loadfile -m "not long" $(SPARK_TESTS)
	MOLDAU_FALLBACKS=1 $(PYTEST) -n $(WORKERS) --dist loadfile -m $(QUICK) $(addprefix --ignore ,$(SIMULATED_TESTS)) $(FALLBACK_TESTS)

.PHONY: test-long
test-long: setup interop-setup  ## the tests of a minute or more each, but for those on Spark (make test-spark)
	$(PYTEST) -m long --ignore tests/spark --ignore tests/unit/spark tests

quick: setup  ## the tests that end within 90 seconds: those without processes, worlds and long sequences
	$(PYTEST) -n $(WORKERS) --dist loadfile -m $(QUICK) $(QUICK_TESTS)

fallbacks: setup  ## the quick tests once more, without uvloop, sendfile and RWF_NOWAIT
	MOLDAU_FALLBACKS=1 $(PYTEST) -n $(WORKERS) --dist loadfile -m $(QUICK) $(QUICK_TESTS)

.PHONY: pythons
pythons: setup  ## the quick tests on each of PYTHONS="3.11 3.12 3.13 3.14" that this machine has, and which it has not
	@PYTHONPATH=tests $(BIN)/python -m pythons $(PYTHONS) -- -q -n $(WORKERS) --dist loadfile -m $(QUICK) $(QUICK_TESTS)

lint: setup  ## lint, types, import contracts
	$(BIN)/ruff check src bench tests examples
	$(BIN)/ruff format --check src bench tests examples
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup  ## write the generated pages anew
	$(BIN)/python -m moldau.config > docs/configuration.md
	$(BIN)/python -m moldau.broker > docs/protocol-support.md
	$(BIN)/python -m moldau.broker.metrics > docs/metrics.md
	$(BIN)/python -m moldau.security < docs/security.md > docs/security.md.new && mv docs/security.md.new docs/security.md

interop-setup: setup  ## install what only the interop tests need, where this user may (kcat, Java, Maven, Prometheus)
	@$(BIN)/python -m bench.setup

$(SPARK_STAMP): $(STAMP) requirements/spark.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/spark.lock
	@touch $@

.PHONY: spark-setup test-spark
spark-setup: $(SPARK_STAMP) interop-setup  ## install what only the Spark tests need: PySpark and the lake's libraries

test-spark: spark-setup  ## all tests of the data source, the sinks and the pipelines, the long ones too
	$(PYTEST) -n $(WORKERS) --dist loadfile $(SPARK_TESTS)

.PHONY: demo
demo: $(SPARK_STAMP)  ## three brokers, a website's page views and a pipeline on Spark, shown live until Ctrl-C (RATE=50)
	@$(BIN)/python -m bench.setup java
	@$(BIN)/python -m bench.demo --rate $(or $(RATE),50)

.PHONY: lake-rounds
lake-rounds: spark-setup  ## kill what writes to the lake, at any step, ROUNDS=20 times (SEED=...)
	ROUNDS=$(or $(ROUNDS),20) $(PYTEST) -s --timeout=0 --seed $(or $(SEED),$$(date +%s)) \
	  tests/spark/test_lake_commits.py tests/spark/test_lake_faults.py tests/spark/test_lake_merge.py

.PHONY: spark-faults
spark-faults: spark-setup  ## copy a topic with Spark while all of it is killed, at any step, ROUNDS=20 times (SEED=...)
	ROUNDS=$(or $(ROUNDS),20) $(PYTEST) -s --seed $(or $(SEED),$$(date +%s)) tests/spark/test_sink_faults.py

.PHONY: spark-cluster
spark-cluster: spark-setup  ## the website-activity pipeline on a cluster of Spark's, a worker of which is killed
	$(PYTEST) -s tests/spark/test_example_website_cluster.py

bench: setup interop-setup  ## Moldau and Apache Kafka side by side; writes docs/benchmarks.md
	$(BIN)/python -m bench

bench-quick: setup interop-setup  ## the same in a few minutes, printed only
	$(BIN)/python -m bench --quick

.PHONY: bench-spark
bench-spark: spark-setup  ## our Spark source and sink beside Spark's own connector; writes docs/benchmarks-spark.md (ONLY=Latency)
	$(BIN)/python -m bench.spark $(if $(ONLY),--only "$(ONLY)")

$(PEERS_STAMP): $(STAMP) requirements/peers.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/peers.lock
	@touch $@

.PHONY: bench-peers
bench-peers: $(PEERS_STAMP)  ## beside Redis Streams, NATS and RabbitMQ, from Debian's packages; into docs/benchmarks.md
	$(BIN)/python -m bench.peers

bench-compaction: setup  ## compact 20 million keys in 5 GB: time and memory (10 GB of disk)
	$(BIN)/python -m bench.many_keys

golden: setup  ## capture requests and answers from the Apache Kafka at KAFKA=host:port
	PYTHONPATH=tests $(BIN)/python -m golden.capture $(KAFKA)

.PHONY: foreign
foreign: setup interop-setup  ## suites of other clients on a fresh broker (SUITE=franz-go, ON=kafka, BROKERS=3, PART=ci)
	@PYTHONPATH=tests $(BIN)/python -m foreign $(SUITE) --on $(or $(ON),moldau) --brokers $(or $(BROKERS),1) --part $(or $(PART),all)

.PHONY: attack
attack: setup  ## attack every API of a fresh broker, with a pinger beside (PART=quick, ONLY=Fetch, KAFKA=1, LIMIT_MS=100)
	@$(if $(filter 1,$(KAFKA)),$(BIN)/python -m bench.setup,:)
	@PYTHONPATH=tests $(BIN)/python -m attack --part $(or $(PART),all) $(if $(ONLY),--only "$(ONLY)") \
	  $(if $(ON),--on $(ON)) $(if $(filter 1,$(KAFKA)),--kafka) $(if $(JSON),--json "$(JSON)")

sim: setup  ## simulate all workloads with fresh seeds for about MINUTES=10
	$(BIN)/python -m moldau.sim --workload all --seed $$(date +%s) --runs $$(( $(MINUTES) * 9 ))

soak: setup  ## MINUTES=10 of load with kills, retention and compaction; writes docs/soak.md
	$(BIN)/python -m bench.soak --minutes $(MINUTES) --docs docs

.PHONY: rounds
rounds: setup interop-setup  ## kill -9 of any two of five brokers, ROUNDS=20 times (SEED=..., ENGINE=sqlite|zookeeper)
	ROUNDS=$(or $(ROUNDS),20) $(PYTEST) -s -k "$(ENGINE)" --seed $(or $(SEED),$$(date +%s)) tests/cluster/test_cluster_rounds.py

.PHONY: rolling copies
rolling: setup interop-setup  ## restart three brokers ROUNDS=20 times under clients that must see no error (ON=kafka)
	ROUNDS=$(or $(ROUNDS),20) $(PYTEST) -s --timeout=0 --target $(or $(ON),moldau) tests/interop/test_rolling_restart.py

copies: setup interop-setup  ## Kafka's transactional copier, COPIES=50000 messages, while brokers are killed (SEED=..., ON=kafka)
	COPIES=$(or $(COPIES),50000) $(PYTEST) -s --timeout=0 --target $(or $(ON),moldau) --seed $(or $(SEED),$$(date +%s)) tests/interop/test_cluster_copier.py

.PHONY: scenarios
scenarios: setup interop-setup  ## all that Kafka's system tests do to a cluster, over both engines (SEED=...)
	SCENARIOS=all $(PYTEST) -s -k "$(ENGINE)" --seed $(or $(SEED),$$(date +%s)) tests/cluster/test_cluster_scenarios.py

properties: setup  ## try EXAMPLES=2000 sequences of whatever happens to a log, other ones each time
	EXAMPLES=$(EXAMPLES) $(PYTEST) --timeout=0 -n $(WORKERS) tests/properties/test_log_properties.py

dist: setup  ## build the sdist and, from it, the wheel into dist/, and check both as PyPI does
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	@! grep -q '//moldau\.example/' pyproject.toml || echo "Not to be published yet: [project.urls] in pyproject.toml are a placeholder."

lock:  ## pin the dependencies anew, with hashes and no index address
	$(COMPILE) --extra dev -o requirements/dev.lock pyproject.toml
	$(COMPILE) -o requirements/base.lock pyproject.toml
	$(COMPILE) -c requirements/dev.lock --extra spark --extra spark-dev -o requirements/spark.lock pyproject.toml
	$(COMPILE) -c requirements/dev.lock --extra peers -o requirements/peers.lock pyproject.toml

clean:  ## remove what the targets made
	rm -rf $(VENV) .venvs dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
