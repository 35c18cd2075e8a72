"""One self-contained HTML page: styles, script and facts inside, nothing fetched."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..storage.checkpoint import whole_file
from ..storage.files import printable
from .kinds import facts

__all__ = ["as_json", "page", "write_page"]

# Nothing may be loaded from anywhere, whatever a name in the facts says.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
SERVED = f"{POLICY}; connect-src 'self'"  # a page that is served asks its server what is new
SCRIPTS = (
    *("elements", "colours", "lines", "dots", "matrices", "tables", "raster"),
    *("compared", "run", "run_inside", "living", "reproduced", "page"),
)
TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title} - gateon</title>
<style>
{style}</style>
</head>
<body>
<script type="application/json" id="facts">{facts}</script>
<script>
{script}</script>
</body>
</html>
"""


def page(shown: dict[str, Any], *, served: bool = False) -> str:
    """The page that shows some facts.

    Args:
        shown: the facts.
        served: whether it asks the server it came from for news.

    >>> text = page({"title": "a <b>", "runs": []})
    >>> "<title>a &lt;b&gt; - gateon</title>" in text, "a <b>" in text
    (True, False)
    """
    assets = files(__package__) / "assets"
    scripts = (*SCRIPTS, "watch") if served else SCRIPTS
    return TEMPLATE.format(
        policy=html.escape(SERVED if served else POLICY, quote=True),
        title=html.escape(printable(shown["title"])),
        style=(assets / "page.css").read_text(encoding="utf-8"),
        script='"use strict";\n'
        + "\n".join((assets / f"{name}.js").read_text(encoding="utf-8") for name in scripts),
        facts=as_json(shown),
    )


def write_page(folders: Sequence[Path], path: Path) -> Path:
    """Write the page of some directories, whole or not at all.

    Args:
        folders: See `facts`.
        path: The file to write.
    """
    text = page(facts(folders))
    with whole_file(path) as aside:
        aside.write_text(text, encoding="utf-8")
    return path


def as_json(shown: Any) -> str:
    """JSON that cannot end the element it stands in, with null for what is not finite."""
    text = json.dumps(_finite(shown), ensure_ascii=False, separators=(",", ":"), default=str)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(held) for held in value]
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
