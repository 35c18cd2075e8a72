"""The layout points one way, and importing the package asks for little."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gateon

SOURCE = Path(gateon.__file__).parent
# Each module may import from those before it only.
ORDER = [
    "norm",
    "contextual",
    "layers",
    "wiring",
    "sites",
    "encoders",
    "relevance",
    "gate",
    "gates",
    "availability",
    "observers",
    "ledgers",
    "obstruct",
    "fold",
    "compact",
    "inherit",
    "tiny",
    "pretrained",
    "models",
    "methods",
    "part",
    "detector",
    "infer",
    "training",
    "learner",
    "isolated",
    "zoo",
    "lamol",
    "metrics",
    "switches",
    "streams",
    "batches",
    "checkpoint",
    "hf",
    "record",
    "lock",
    "folder",
    "inspection",
    "progress",
    "stopping",
    "run",
    "options",
    "language",
    "specification",
    "forecast",
    "report",
    "compare",
    "reproduce",
    "cli",
]


def package_imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parent if node.level == 1 else path.parent.parent
            if base == SOURCE:
                yield from [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_arrow_points_back(path):
    module = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if module == "__init__":
        return
    assert module in ORDER, f"{module} has no place in the order yet"
    later = [name for name in package_imports(path) if ORDER.index(name) > ORDER.index(module)]
    assert not later, f"{module} imports {later}, which come after it"


def test_importing_needs_torch_numpy_and_safetensors_only():
    script = (
        "import sys, torch, numpy, safetensors\n"
        "before = set(sys.modules)\n"
        "import gateon\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "own = {'gateon', 'torch', 'numpy', 'safetensors'} | sys.stdlib_module_names\n"
        "print(' '.join(new - own))\n"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    # sympy and what it needs come with torch itself.
    assert set(output.split()) <= {"sympy", "mpmath", "networkx", "torchgen", "filelock", "typing_extensions"}


def test_every_public_name_is_documented():
    missing = [name for name in gateon.__all__ if not (getattr(gateon, name).__doc__ or "").strip()]
    assert not missing
