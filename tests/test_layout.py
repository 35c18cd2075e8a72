"""The rooms of the package point one way, and importing it asks for little."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gateon
from gateon import methods, streams

SOURCE = Path(gateon.__file__).parent
# What each room may import besides itself.
MECHANISM = {"anatomy", "gating", "parallel", "availability", "subnetwork"}
ROOMS = {
    "anatomy": set(),
    "gating": {"anatomy"},
    "parallel": {"anatomy"},
    "availability": {"anatomy", "gating", "parallel"},
    "subnetwork": {"anatomy", "gating", "availability"},
    "storage": {"anatomy", "gating"},
    "networks": {"anatomy", "storage"},
    "detection": {"storage"},
    "methods": {*MECHANISM, "storage", "detection"},
    "learners": {*MECHANISM, "storage", "methods", "detection"},
    "tracing": {*MECHANISM, "storage", "learners"},
    "tracking": {*MECHANISM, "storage"},
    "streams": {"networks", "storage"},
    "runs": {
        *MECHANISM,
        *("storage", "methods", "detection", "learners", "networks", "streams"),
        *("tracing", "tracking"),
    },
    "report": {"runs", "storage", "tracing"},
    "workers": {"runs", "storage", "tracing"},
    "search": {"methods", "runs", "storage", "workers"},
    "reproduce": {
        *MECHANISM,
        "storage",
        "methods",
        "learners",
        "streams",
        "runs",
        "report",
        "workers",
    },
    "integrations": {
        *MECHANISM,
        *("storage", "networks", "methods", "learners", "streams", "runs", "tracking"),
    },
    "life": {
        *MECHANISM,
        *("storage", "methods", "detection", "learners", "networks", "streams", "runs"),
    },
    "pages": {
        *MECHANISM,
        *("storage", "tracing", "learners", "runs", "life", "report", "reproduce"),
    },
    "cli": {
        *MECHANISM,
        "life",
        "pages",
        "storage",
        "methods",
        "learners",
        "streams",
        "runs",
        "report",
        "reproduce",
        "workers",
        "search",
        "tracking",
    },
}
DOORS = {"__init__", "__main__", "hf", "models"}  # short names for what is inside
GROUND = {"lazy", "markup", "options"}  # every room may import it


def imported_rooms(path):
    place = list(path.relative_to(SOURCE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = place[: len(place) - node.level + 1]
            full = base + (node.module.split(".") if node.module else [])
            yield from [full[0]] if full else [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom | ast.Import):  # by absolute names
            names = (
                [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
            yield from [name.split(".")[1] for name in names if name.startswith("gateon.")]


def test_the_rooms_are_those_of_the_map():
    found = {
        path.name.removesuffix(".py")
        for path in SOURCE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert found == {*ROOMS, *DOORS, *GROUND}


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_rooms_import_only_what_they_may(path):
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room in DOORS | GROUND:
        return
    others = set(imported_rooms(path)) - {room} - GROUND
    assert others <= ROOMS[room], (
        f"{path.relative_to(SOURCE)} imports {sorted(others - ROOMS[room])}, which {room} may not"
    )


@pytest.mark.parametrize(
    "line",
    [
        "from ..runs import run",
        "from ..runs.run import run",
        "from .. import runs",
        "from gateon.runs import run",
        "import gateon.runs.run",
    ],
)
def test_a_forbidden_import_is_seen_wherever_it_stands(tmp_path, monkeypatch, line):
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    path = tmp_path / "anatomy" / "new.py"
    path.parent.mkdir()
    path.write_text(f"def late():\n    {line}\n")
    assert set(imported_rooms(path)) == {"runs"}
    with pytest.raises(AssertionError, match="which anatomy may not"):
        test_rooms_import_only_what_they_may(path)


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_says_what_it_is_for(room):
    assert (ast.get_docstring(ast.parse((SOURCE / room / "__init__.py").read_text())) or "").strip()


def test_importing_needs_torch_numpy_and_safetensors_only():
    script = (
        "import sys, torch, numpy, safetensors\n"
        "before = set(sys.modules)\n"
        "import gateon\n"
        "[getattr(gateon, name) for name in gateon.__all__]\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "own = {'gateon', 'torch', 'numpy', 'safetensors'} | sys.stdlib_module_names\n"
        "print(' '.join(new - own))\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    # sympy and what it needs come with torch itself.
    assert set(output.split()) <= {
        "sympy",
        "mpmath",
        "networkx",
        "torchgen",
        "filelock",
        "typing_extensions",
    }


def test_every_public_name_is_documented():
    missing = [name for name in gateon.__all__ if not (getattr(gateon, name).__doc__ or "").strip()]
    assert not missing


def test_public_names_are_imported_from_where_they_are():
    assert {*names_of(gateon), *gateon.MODULES} - {"hf"} == set(gateon.__all__)
    assert {*names_of(streams), "sources"} == set(streams.__all__)
    assert names_of(methods) == set(methods.__all__)
    assert set(gateon.__all__) <= set(dir(gateon))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gateon.nothing  # noqa: B018


def names_of(package):
    """The names that a package imports when they are first used; each must be there."""
    found = {name for names in package.NAMES.values() for name in names}
    assert all(hasattr(package, name) for name in found)
    return found
