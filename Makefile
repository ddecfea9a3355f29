# FleetPS. `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

VENV ?= .venv
# The first Python that runs and has a Paddle wheel. A name on the PATH is not enough: version
# managers leave commands there that only say which version is not chosen.
ifndef PYTHON
PYTHON := $(shell for name in python3.11 python3.12 python3.10 python3; do \
	"$$name" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' 2>/dev/null \
	&& echo "$$name" && break; done)
endif
CONFIG ?= conf/quickstart.yaml
# Which tests of containers, for pytest -m: "not thorough" is what .ci/run has time for.
CHOICE ?= not pods
# How many tests run at the same time.
TESTS ?= 2
UV_VERSION := 0.13.9
CHECKOV_VERSION := 3.3.30
CYCLONEDX_VERSION := 7.5.0

BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# Of its own, because it wants other versions of what we use.
CHECKOV := $(VENV)-checkov
PIP := $(BIN)/python -m pip --disable-pip-version-check
SHELL_FILES = .ci/run docker/fleetps $(wildcard scripts/*.sh docker/*.sh k8s/*.sh tests/docker/*.sh)
YAML_FILES = .yamllint.yaml k8s monitoring tests/k8s/schemas $(wildcard conf/*.yaml docker-compose*.yml tests/*/*.yml)

.PHONY: help setup train test test-unit test-k8s test-cluster test-docker test-pods test-monitoring lint checkov format doctor bench image sbom lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## make the virtual environment with the pinned dependencies

$(STAMP): requirements-dev.lock pyproject.toml
	@test "$$(uname -sm)" = "Linux x86_64" || { echo "PaddlePaddle 2.6.2 has wheels for Linux on x86_64 only; this is $$(uname -sm)"; exit 2; }
	@test -n "$(PYTHON)" || { echo "no Python 3.10, 3.11 or 3.12 found; on Debian or Ubuntu: apt install python3 python3-venv, or name one: make setup PYTHON=/path/to/python3.11"; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' || { echo "$(PYTHON) is not a Python 3.10, 3.11 or 3.12; name one: make setup PYTHON=/path/to/python3.11"; exit 2; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) can't make virtual environments; on Debian or Ubuntu: apt install python3-venv"; exit 2; }
	"$(PYTHON)" -m venv --clear $(VENV)
	$(PIP) install --quiet --require-hashes -r requirements-dev.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/fleetps --version
	touch $@

train: $(STAMP) ## train the job of CONFIG (conf/quickstart.yaml) on this machine
	$(BIN)/fleetps launch --config $(CONFIG)

test: test-unit test-k8s test-cluster ## all tests that need only what make setup installs

# One more at a time than elsewhere: many of them wait for a process.
test-unit: $(STAMP) ## the tests that start no Paddle processes
	$(BIN)/python -m pytest --numprocesses $$(($(TESTS) + 1)) tests/unit

test-k8s: $(STAMP) ## the tests of the Kubernetes manifests; they need no cluster
	$(BIN)/python -m pytest --numprocesses $(TESTS) tests/k8s

test-cluster: $(STAMP) ## the tests on real servers and workers
	$(BIN)/python -m pytest --numprocesses $(TESTS) --durations 20 tests/cluster

test-docker: $(STAMP) ## the tests of the image and of Compose; as root: after tests/docker/prepare.sh
	$(BIN)/python -m pytest --durations 20 -m "$(CHOICE)" tests/docker

test-pods: ## the pod templates of k8s/base as containers; as test-docker
	$(MAKE) test-docker CHOICE=pods

test-monitoring: $(STAMP) ## Prometheus and Chromium look at a real job; after scripts/install_monitoring.sh
	$(BIN)/python -m pytest --durations 10 tests/monitoring

lint: $(STAMP) ## style, types, YAML and shell scripts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/yamllint --strict $(YAML_FILES)
	$(BIN)/shellcheck $(SHELL_FILES)
	$(BIN)/hadolint docker/Dockerfile

checkov: $(STAMP) $(CHECKOV)/.ready ## what checkov has to say about the Kubernetes manifests
	PATH="$(abspath $(BIN)):$$PATH" scripts/checkov.sh $(CHECKOV)/bin/checkov

$(CHECKOV)/.ready: requirements-checkov.lock
	"$(PYTHON)" -m venv --clear $(CHECKOV)
	$(CHECKOV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r $<
	touch $@

format: $(STAMP) ## put the code into its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

doctor: $(STAMP) ## check this machine and the job of CONFIG
	$(BIN)/fleetps doctor --config $(CONFIG)

bench: $(STAMP) ## measure the throughput, and print it; the script's --write puts it into benchmarks/results/
	$(BIN)/python benchmarks/throughput.py

image: ## build the image; OPTIONS="--offline" and others: scripts/build_image.sh --help
	scripts/build_image.sh $(OPTIONS)

sbom: ## list the packages of requirements.lock with their hashes in build/sbom.cdx.json (CycloneDX)
	"$(PYTHON)" -m venv --clear $(VENV)-sbom
	$(VENV)-sbom/bin/python -m pip --disable-pip-version-check install --quiet cyclonedx-bom==$(CYCLONEDX_VERSION)
	mkdir -p build
	$(VENV)-sbom/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
		--output-file build/sbom.cdx.json requirements.lock
	rm -r $(VENV)-sbom

lock: ## choose new exact versions of all dependencies
	"$(PYTHON)" -m venv --clear $(VENV)-lock
	$(VENV)-lock/bin/python -m pip --disable-pip-version-check install --quiet uv==$(UV_VERSION)
	compile() { $(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
		--upgrade --no-annotate --custom-compile-command "make lock" "$$@"; }; \
	compile pyproject.toml --extra cpu --extra ssh --extra dev --output-file requirements-dev.lock; \
	compile pyproject.toml --extra cpu --constraint requirements-dev.lock --output-file requirements.lock; \
	compile pyproject.toml --extra gpu --constraint requirements.lock --output-file requirements-gpu.lock; \
	compile - --output-file requirements-checkov.lock <<< "checkov==$(CHECKOV_VERSION)"
	rm -r $(VENV)-lock

clean: ## remove what make setup and the tools made; runs/ and data/ stay
	rm -rf $(VENV) $(VENV)-lock $(VENV)-sbom $(CHECKOV) build wheelhouse *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find fleet_config fleetps tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
