# `make` lists the targets. Those that need .venv first make it if it is missing or older than its sources.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made
MADE_FROM := pyproject.toml sdk/pyproject.toml plugins/pyproject.toml plugins/scheduler_plugins/pyproject.toml bench/pyproject.toml host/constraints.txt
# The first Python on PATH that is new enough and can make an environment, else the first that is new enough;
# `make PYTHON=/path/to/python3.11 setup` uses another one. A command may exist that finds no Python (pyenv's): each is
# tried. The search runs at the first use, and once: each Python that it starts takes time.
PYTHON ?= $(eval PYTHON := $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; first=$${first:-$$p}; \
	"$$p" -c 'import ensurepip, venv' >/dev/null 2>&1 && { first=$$p; break; }; done; echo "$$first"))$(PYTHON)
# The newest Python of those that the packages' classifiers name, on PATH or among pyenv's; the oldest does not count.
NEWEST ?= $(eval NEWEST := $(shell for v in 3.14 3.13 3.12; do \
	for p in "python$$v" "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$v.*/bin/"python$$v"; do \
	"$$p" -c 'import ensurepip, venv' >/dev/null 2>&1 && { echo "$$p"; exit; }; done; done))$(NEWEST)
VERSION := import sys; print("%d.%d" % sys.version_info[:2])

# Run three files at a time, also on two processors: with two, these are idle for a third of the time, as most tests
# wait for another process. Each file is collected once (`tests/support/by_file.py`).
AT_ONCE := --numprocesses=3 --dist=worksteal --by-file -o console_output_style=classic

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-newest test-rest test-all test-changed check conformance-examples dist docs image envtest e2e scheduler-perf-data soak

help:
	@echo 'make demo    watch a scheduler place workloads with plugins that run in other processes'
	@echo 'make test    run the tests'
	@echo 'make test-changed run those of them that import what differs from main; BASE=HEAD compares with another commit'
	@echo 'make test-newest run the tests on the newest Python that is found here, in an environment of its own; NEWEST=/path/to/python3.14 names it'
	@echo 'make check   lint, formatting, types, layers, generated code'
	@echo 'make setup   make .venv; the other targets do so when it is needed'
	@echo 'make conformance-examples build the example plugins of every language, run the conformance kit and a simulation with each; LANGUAGES="go rust" chooses'
	@echo 'make docs    build the documentation as a site into build/site, with search; every link is checked'
	@echo 'make dist    build the packages, the chart and the list of what they bring into dist/, install them in an empty environment and try them'
	@echo 'make image   build both images with buildah, without a registry, and try them with a read-only root; needs root'
	@echo 'make envtest build a real API server, etcd, kube-scheduler and helm for tests/cluster; needs Go'
	@echo "make e2e     run Kubernetes' own scheduling specs against kube-scheduler and berth; needs Go, an hour"
	@echo 'make scheduler-perf-data download the workloads of Kubernetes'"'"' scheduler_perf; needs Go'
	@echo 'make test-all run make test, then make test-rest'
	@echo 'make test-rest run what make test leaves out: more variants of its tests, mutants, a short soak, corrupted answers, hostile objects'
	@echo 'make soak    50000 hostile objects, 60 fail-overs, many kills, 60 of the API server, 60 partitions, an outage, every recorded scenario, tests with delayed events, berth bench soak, 2000 lives, 60000 corrupted answers, 20000 corrupted command lines; 170 minutes'

setup: $(STAMP)

demo: $(STAMP)
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python examples/demo/demo.py

# Where bytecode is not written, every process that a test starts compiles what it imports.
test test-rest test-changed: export PYTHONDONTWRITEBYTECODE :=

test: $(STAMP)
	$(BIN)/pytest $(AT_ONCE) $(PYTEST_ARGS)

test-changed: $(STAMP)
	@files=$$($(BIN)/python tests/changed.py $(or $(BASE),main)) || exit; \
	test -z "$$files" || $(BIN)/pytest $(AT_ONCE) $$files $(PYTEST_ARGS)

test-newest: $(STAMP)
	@used=$$($(BIN)/python -c '$(VERSION)'); echo "make test runs on Python $$used"; \
	newest=$$(test -z "$(NEWEST)" || "$(NEWEST)" -c '$(VERSION)'); \
	case "$$newest" in \
	"") echo 'there is no Python 3.12, 3.13 or 3.14 here with its venv module: the tests run on no other Python';; \
	"$$used") echo "this is the newest Python here: the tests run on no other Python";; \
	*) echo "the newest Python here is $$newest ($(NEWEST)): make test runs on it, too, in .venv-$$newest"; \
		$(MAKE) --no-print-directory PYTHON="$(NEWEST)" VENV=".venv-$$newest" test;; \
	esac

test-all:
	$(MAKE) --no-print-directory test
	$(MAKE) --no-print-directory test-rest

test-rest: $(STAMP)
	$(BIN)/pytest $(AT_ONCE) -m long $(PYTEST_ARGS)

soak: $(STAMP)
	$(BIN)/berth bench soak --minutes 20 --seed $${SEED:-1} -o json
	$(BIN)/berth bench life --lives $${LIVES:-2000} --days 0.01 --seed $${SEED:-$$(date +%s)} -o json
	for seed in 1 2; do $(BIN)/pytest $(AT_ONCE) --late $$seed -m "long or not long" \
		tests/host/app tests/host/handle tests/host/queue tests/host/explain tests/sim/run \
		tests/host/cycle tests/host/groups tests/host/preemption tests/host/questions tests/host/attach \
		tests/host/faults/test_cluster_trouble.py tests/host/faults/test_guards.py tests/host/plugins tests/host/rpc \
		|| exit; done
	BERTH_FUZZ_ANSWERS=60000 $(BIN)/pytest $(AT_ONCE) -m "long or not long" tests/host/rpc/test_mutated_answers.py \
		tests/host/attach/test_mutated_answers.py tests/host/faults/test_mutated_answers.py \
		tests/host/faults/test_bad_extender.py \
		tests/host/handle/test_mutated_requests.py
	BERTH_FUZZ_INPUTS=20000 $(BIN)/pytest $(AT_ONCE) tests/host/cli/test_any_input.py
	BERTH_FUZZ_OBJECTS=50000 BERTH_FUZZ_SEED=$${SEED:-$$(date +%s)} $(BIN)/pytest -m "long or not long" -s \
		tests/cluster/test_fuzz_objects.py
	BERTH_FAILOVERS=60 BERTH_KILLS=40 BERTH_GROUP_KILLS=60 BERTH_PARTITIONS=60 BERTH_OUTAGE_S=60 BERTH_API_KILLS=60 BERTH_REAL_SOAK_S=120 $(BIN)/pytest -v \
		-m "long or not long" tests/cluster/test_failover.py tests/cluster/test_kill.py tests/cluster/test_kill_groups.py \
		tests/cluster/test_outage.py tests/cluster/test_partition.py tests/cluster/test_group_outage.py tests/cluster/test_soak.py $(PYTEST_ARGS)
	BERTH_MADE_PLUGINS=all $(BIN)/pytest -m "long or not long" tests/examples/test_made_plugins.py
	$(BIN)/python tests/cluster/replay_observability.py tests/cluster/golden_observability
	for folder in golden_extender golden_extender/more; do \
		$(BIN)/python tests/cluster/replay_extender.py tests/cluster/$$folder || exit; done

conformance-examples: $(STAMP)
	@LANGUAGES="$(LANGUAGES)" $(BIN)/python tests/examples/conformance.py

docs: $(STAMP)
	$(BIN)/python tests/docs/site.py

dist: $(STAMP) envtest
	$(BIN)/python tests/deploy/dist.py

image: $(STAMP)
	$(BIN)/python tests/deploy/image.py

envtest:
	@sh tests/cluster/envtest/build.sh
	@sh tests/deploy/promtool.sh
	@sh tests/host/ui/chromium.sh
	@sh tests/contract/protoc.sh

e2e: $(STAMP)
	@sh tests/cluster/envtest/build.sh e2e
	$(BIN)/python tests/cluster/e2e/run.py $(E2E_ARGS)

scheduler-perf-data:
	@PYTHON="$(PYTHON)" sh tests/cluster/envtest/scheduler_perf_data.sh

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python proto/generate.py --check --release

$(STAMP): $(MADE_FROM)
	@test -n "$(PYTHON)" || { echo 'berth needs Python 3.11 or newer, but there is none on PATH:' \
		'install it (Debian: apt-get install python3 python3-venv),' \
		'or name it: make PYTHON=/path/to/python3.11 setup' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'berth needs Python 3.11 or newer, but $(PYTHON) is older:' \
		'make PYTHON=/path/to/python3.11 setup' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo 'the venv module of $(PYTHON) is missing: apt-get install python3-venv' >&2; exit 1; }
	@# Make .venv anew if it does not work (it was moved, or its Python was removed).
	@$(BIN)/python -c '' 2>/dev/null && $(BIN)/pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c host/constraints.txt -e ./sdk -e './plugins[dra]' -e ./plugins/scheduler_plugins -e '.[dev]' -e ./bench
	@# pip does not compile packages that are installed in place; then each start of a process would compile them.
	@$(BIN)/python -m compileall -q sdk/berth_sdk host/berth_host host/berth_kube host/berth_sim plugins/berth_plugins plugins/scheduler_plugins/berth_scheduler_plugins bench/berth_bench tests/support
	@touch $@
