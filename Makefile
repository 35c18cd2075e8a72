# Two commands do everything on a fresh clone: `make demo` and `make test`. Both create .venv themselves.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: test quality style bench clean

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

quality: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

style: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: quality
	$(BIN)/pytest

clean:
	rm -rf .venv build dist
