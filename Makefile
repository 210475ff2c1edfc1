# Two commands set up everything they need on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS ?= 2
# Threads that wait for each other sleep soon, so that a busy neighbour costs less (see docs/notebook.md).
export GOMP_SPINCOUNT ?= 10000
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

help:            ## this list
	@grep -E '^[a-z]+: .*##|^[a-z]+:  *##' $(MAKEFILE_LIST) | sed 's/:[^#]*##/\t/' | expand -t 12

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) install -c constraints.txt torch
	$(PIP) install -c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/ready  ## the whole line on text found on this machine, in under ten minutes
	$(BIN)/keel demo --out demo

test: .venv/ready  ## all tests: two at a time, then by themselves those that a clock judges
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not clock"
	$(BIN)/python -m pytest -m clock

faults: .venv/ready  ## the fault suite at full length, with its figures: about half an hour on two cores
	KEEL_FAULTS=all KEEL_KILLS=20 KEEL_FUZZ=10000 $(BIN)/python -m pytest tests/faults tests/files/test_folders.py \
		tests/serving/faults tests/serving/test_answers.py tests/serving/test_schema.py -m "not clock" -n 2 --dist worksteal --timeout 3600
	KEEL_FAULTS=all $(BIN)/python -m pytest tests/faults tests/serving/faults -m clock --timeout 3600

check: .venv/ready  ## style, types, import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_imports.py tests/test_repository.py

fix: .venv/ready  ## let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/ready  ## speed against the peers, alternating in one process; TEXT=path measures on your own text
	$(BIN)/python bench/run.py $(if $(TEXT),--text $(TEXT))

docs: .venv/ready  ## these pages as a site that can be searched, in site/, English and Chinese; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

pictures: .venv/ready  ## the pictures of the guide to explanations, of the models in MODELS=folder
	$(BIN)/python docs/pictures.py $(MODELS)

golden: .venv/ready  ## short runs of every model and task on BASE and on this tree: the same to the last bit?
	$(BIN)/python bench/golden.py $(BASE)

dist: .venv/ready  ## a wheel and a source archive in dist/
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m build --outdir dist

distcheck: dist  ## the wheel of dist/ in an empty environment: installs everything anew, some minutes
	KEEL_WHEEL=dist $(BIN)/python -m pytest tests/test_wheel.py --timeout 1800

.PHONY: help demo test faults check fix bench docs pictures golden dist distcheck
.DEFAULT_GOAL := help
