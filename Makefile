# netsum: `make help` lists what can be made. Every target sets up what it needs by itself (scripts/setup).

WORKERS  ?= 4
SWITCH   ?= auto
DURATION ?= 60
MINUTES  ?= 10
PACKETS  ?= 1000000
SEED     ?= 1
SCENARIO ?=
TOPOLOGY ?=
ARGS     ?=

BIN   := .venv/bin
READY := .venv/.ready
TESTS := .venv/.ready-tests
SHELL_PACKAGES := .venv-shell/.ready
DOCS := .venv-docs/.ready
PICTURES := .venv-pictures/.ready
CLIENTS := .venv-finsy/.ready .venv-ptf/.ready
TRAINING := .venv-training/.ready
TORCH_VERSIONS := .venv-torch-oldest/.ready .venv-torch-newest/.ready
# The system tests run from the checkout; no wheel has them.
SYSTEM := $(BIN)/python -m tests.system
# A file of mininet/topologies/, with a worker on each host, or a star of WORKERS.
NETWORK = $(if $(TOPOLOGY),--topology $(TOPOLOGY),--workers $(WORKERS))
# What a run may lack without failing; printed loudly by scripts/missing and again in pytest's summary.
MISSING = $(shell scripts/missing)

# Most tests wait more than half of their time, so there are more testers than cores, 4 at most: two more for `make test`, one for the
# heavier rest. Who has nothing left takes over from who has most.
testers = $(shell wanted=$$(($$(nproc) + $(1))); echo $$((wanted < 4 ? wanted : 4)))
AS_TESTER = NETSUM_ALLOW_MISSING="$${NETSUM_ALLOW_MISSING-$(MISSING)}" scripts/as-root
TESTING = $(AS_TESTER) $(BIN)/python
PYTEST = $(TESTING) -m pytest --dist worksteal

# Tests start hundreds of processes, which would each compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup docs pictures demo test quick-tests test-all coverage explore testbed verify matrix links fuzz soak memory-check bench algorithms stragglers detection simulate-check predict-check cluster-check protocol-conformance torch-conformance torch-versions p4 p4-check lock lint format clean

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  variables: WORKERS=$(WORKERS) SWITCH=auto|bmv2|embedded DURATION=seconds (verify, matrix, memory-check) MINUTES=n (soak, explore) PACKETS=n SEED=n (fuzz, soak, matrix, memory-check) SCENARIO=file (soak) TOPOLOGY=file (demo, testbed, verify) ARGS='more options' PIP_ARGS='of pip, such as --extra-index-url URL' (setup, test)"

$(READY): pyproject.toml scripts/setup scripts/pip_install.py
	@scripts/setup

# What `make test` needs and no command: torch, and so gigabytes on most machines.
$(TESTS): $(READY)
	@scripts/setup tests

# PTF needs a compiler for one of its packages (netifaces): without, the tests go on and say what they leave out (scripts/missing).
$(CLIENTS): .venv-%/.ready: scripts/environment $(TESTS)
	@scripts/environment $* || test $$? -ne 130

$(SHELL_PACKAGES) $(TRAINING) $(PICTURES) $(TORCH_VERSIONS): .venv-%/.ready: scripts/environment $(TESTS)
	@scripts/environment $*

# Torch's part of the reference is read, not imported.
$(DOCS): .venv-%/.ready: scripts/environment $(READY)
	@scripts/environment $*

# What a host has that joins an aggregator.
.venv-hosts/.ready: scripts/hosts-environment pyproject.toml $(READY) $(shell git ls-files hosts/netsum 2>/dev/null)
	@scripts/hosts-environment

setup: $(READY)  ## virtual environment, Debian packages (as root or with sudo), Python packages that the commands need

demo: $(READY)  ## train a real model on WORKERS workers through a P4 switch
	@scripts/as-root $(BIN)/netsum demo $(NETWORK) --switch $(SWITCH) $(ARGS)

testbed: $(READY)  ## a Mininet network with controller and a job ready; ends in Mininet's prompt
	@scripts/as-root $(BIN)/netsum testbed $(NETWORK) --switch $(SWITCH) $(ARGS)

test: $(TESTS) $(SHELL_PACKAGES)  ## what finds ordinary mistakes, in minutes: lint, types, and every test that is not marked `full`
	@scripts/missing --say
	@$(MAKE) --no-print-directory -j lint p4-check quick-tests

quick-tests: $(TESTS) $(SHELL_PACKAGES)
	@$(PYTEST) -n $(call testers,2) -m "not (full or explore)" $(ARGS)

test-all: test $(CLIENTS) $(TRAINING) $(DOCS)  ## all but the hours of `make explore`: `make test`, the tests marked `full`, and properties on more examples
	@$(PYTEST) -n $(call testers,1) -m "(full or hypothesis) and not explore" --hypothesis-profile thorough $(ARGS)

coverage: $(TESTS)  ## branch coverage of the product by the tests of `make test`, file by file
	@$(PYTEST) -n $(call testers,2) -m "not (full or explore)" --cov --cov-report=term $(ARGS)

explore: $(TESTS)  ## the longest explorations once, and new cases for every property for MINUTES (ARGS=tests/hosts: of a part); prints each it finds as an @example
	@$(TESTING) -m tests.exploring $(MINUTES) -n $(call testers,1) --dist worksteal -q $(ARGS)

verify: $(READY)  ## random allreduce calls checked bit for bit for DURATION seconds; last line JSON
	@scripts/as-root $(BIN)/netsum verify --switch $(SWITCH) --duration $(DURATION) $(if $(TOPOLOGY),--topology $(TOPOLOGY)) $(ARGS)

matrix: $(READY)  ## every collective, operation and type at random for DURATION seconds from SEED, checked; last line JSON
	@scripts/as-root $(SYSTEM) matrix --switch $(SWITCH) --duration $(DURATION) --seed $(SEED) $(ARGS)

links: $(READY)  ## bytes of each collective on every link of trees of switches, next to the formulas; last line JSON
	@scripts/as-root $(SYSTEM) links --switch $(SWITCH) $(ARGS)

fuzz: $(READY)  ## PACKETS malformed packets into switches with live jobs, nothing may change; last line JSON
	@scripts/as-root $(SYSTEM) fuzz --packets $(PACKETS) --switch $(SWITCH) --seed $(SEED) $(ARGS)

soak: $(READY)  ## random calls for MINUTES under faults from SEED (or SCENARIO=file); last line JSON
	@scripts/as-root $(SYSTEM) soak --switch $(SWITCH) --minutes $(MINUTES) --seed $(SEED) $(if $(SCENARIO),--scenario $(SCENARIO)) $(ARGS)

bench: $(READY)  ## time per contribution next to plain forwarding, on every available switch; last line JSON
	@scripts/as-root $(BIN)/netsum bench switch $(ARGS)

algorithms: $(READY)  ## time the algorithms without a switch, next to the switches; keeps the table for this place
	@scripts/as-root $(BIN)/netsum bench algorithms $(ARGS)

memory-check: $(READY)  ## random instructions on memory in the network for DURATION seconds under faults from SEED; last line JSON
	@scripts/as-root $(SYSTEM) memory-check --switch $(SWITCH) --duration $(DURATION) --seed $(SEED) $(ARGS)

stragglers: $(READY)  ## train with a worker that sleeps at random, in jobs that wait and jobs that degrade; last line JSON
	@scripts/as-root $(SYSTEM) stragglers --switch $(SWITCH) $(ARGS)

detection: $(READY)  ## how long a block waits for a straggler, against block_exp, on every available switch; last line JSON
	@scripts/as-root $(SYSTEM) detection --switch $(SWITCH) $(ARGS)

simulate-check: $(READY)  ## simulated allreduces next to measured ones, on links with rates; last line JSON
	@scripts/as-root $(SYSTEM) simulate-check $(ARGS)

predict-check: $(READY)  ## predicted training steps next to measured ones, on links with rates; last line JSON
	@scripts/as-root $(SYSTEM) predict-check $(ARGS)

cluster-check: .venv-hosts/.ready  ## trainings on servers of an ordinary network with an aggregator, disturbed, and calls beside Gloo's; last line JSON
	@scripts/as-root $(SYSTEM) cluster-check $(ARGS)

# A shell may have HOST in its environment: only the command line counts.
TESTED = $(if $(filter command,$(firstword $(origin HOST))),--host '$(HOST)',--switch $(SWITCH))

protocol-conformance: $(TESTS)  ## PROTOCOL.md's rules on a switch (SWITCH=HOST:PORT) or a host (HOST='command'); last line JSON
	@scripts/as-root $(SYSTEM) protocol-conformance $(TESTED) $(ARGS)

torch-conformance: $(TRAINING)  ## torch's own tests of torch.distributed, and torchft's, on netsum; last line JSON
	@$(SYSTEM) torch-conformance $(ARGS)

torch-versions: $(TORCH_VERSIONS)  ## tests/torch with the oldest and the newest PyTorch that pyproject.toml names, gigabytes on most machines
	@for folder in $(^D); do \
		$(AS_TESTER) $$folder/bin/python -m pytest --dist worksteal -n $(call testers,1) -m "not (explore or training)" tests/torch $(ARGS) || exit; \
	done

p4: $(READY)  ## compile the P4 program and regenerate everything that comes from the wire schema (needs p4c)
	@$(BIN)/python p4src/compile.py
	@$(BIN)/python -m netsum.wire.to_lua
	@$(BIN)/python -m netsum.wire.to_docs

p4-check: $(READY)
	@$(BIN)/python p4src/compile.py --check

docs: $(DOCS)  ## the documentation and its generated reference as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --quiet
	@echo "build/site/index.html"

pictures: $(PICTURES)  ## draw the pictures in docs/ again, from what is in the tree; takes Chromium
	@.venv-pictures/bin/python scripts/pictures.py

lock: $(TESTS) $(SHELL_PACKAGES) $(CLIENTS) $(DOCS)  ## write the versions that are installed into constraints/, from which CI installs
	@$(BIN)/python scripts/lock.py

lint: $(TESTS)  ## ruff, mypy --strict, codespell, import-linter, and the files that GitHub reads
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/codespell
	@$(BIN)/lint-imports --no-cache
	@scripts/check-github

format: $(TESTS)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:  ## remove the virtual environment and every cache
	rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .netsum .coverage*
	find . -name '*.egg-info' -prune -exec rm -rf {} +
	find . -name __pycache__ -prune -exec rm -rf {} +
