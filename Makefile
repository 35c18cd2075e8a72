# Two commands do everything on a fresh clone: `make demo` and `make test`. Both create .venv themselves.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo demo-quick test browser ray trl track roundings quality style bench torture clean

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Ten permuted tasks of full MNIST, with gateon and without: about three minutes on two cores.
demo: .venv/installed
	$(BIN)/gateon compare permuted-mnist --methods n-gateon,finetune --hidden 1000 1000 --out runs/demo

# The same idea in under a minute, on 5,000 digits that need no network.
demo-quick: .venv/installed
	$(BIN)/gateon compare permuted-mnist --methods n-gateon,finetune --data mnist-5k --tasks 5 --hidden 500 500 --batch 200 --steps 100 \
		--out runs/demo-quick

quality: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

style: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# All tests as this processor rounds, then the numeric ones as some others would.
test: quality
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal
	$(BIN)/python tests/roundings.py

# The numeric tests under every combination of kernels and threads, one after the other: about half an hour.
roundings: .venv/installed
	$(BIN)/python tests/roundings.py --all

# Pages in a real browser; needs chromium.
browser: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt playwright
	GATEON_BROWSER=1 $(BIN)/pytest tests/browser

# What trackers wrote is read back with each of the real libraries; trackio gets its own older pillow.
track: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[track]'
	grep -v '^pillow' constraints.txt > .venv/for-trackio.txt
	$(BIN)/pip install --quiet --constraint .venv/for-trackio.txt --target .venv/trackio --upgrade 'trackio>=0.40'
	GATEON_TRACKERS=1 PYTHONPATH=.venv/trackio $(BIN)/pytest tests/tracking

# Runs on a Ray cluster of two nodes on this machine; Ray is large, and its nodes need a machine that is not busy.
ray: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[ray]'
	$(BIN)/pytest tests/workers/test_on_ray.py

# A decoder under TRL's SFTTrainer.
trl: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[trl]'
	$(BIN)/pytest tests/test_hf_trl.py

# Runs at a bucket, of a server on this machine that speaks S3. Its libraries need older versions of some of ours.
s3: .venv/installed
	$(BIN)/pip install --quiet --target build/s3 s3fs==2026.9.0 boto3==1.43.117 'moto[s3]==5.2.5' flask==3.1.3 flask-cors==6.0.5
	PYTHONPATH=build/s3 $(BIN)/pytest tests/workers/test_s3.py

bench: .venv/installed
	$(BIN)/python benchmarks/full_width_step.py
	$(BIN)/python benchmarks/compact_step.py
	$(BIN)/python benchmarks/density.py --steps 150
	$(BIN)/python benchmarks/precision.py
	$(BIN)/python benchmarks/figures.py
	$(BIN)/python benchmarks/tables.py

# Runs killed and resumed, mutated files, a thousand tasks: the figures of docs/reliability.md. About ten minutes.
torture: .venv/installed
	$(BIN)/python benchmarks/torture.py
	$(BIN)/python benchmarks/fuzz.py
	$(BIN)/python benchmarks/fuzz_compact.py
	$(BIN)/python benchmarks/soak.py
	$(BIN)/python benchmarks/checkpoints.py

clean:
	rm -rf .venv build dist
