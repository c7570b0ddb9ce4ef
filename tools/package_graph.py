"""The diagram of packages in docs/request.md, drawn from the imports of proxy/."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

PROXY = Path(__file__).parents[1] / "proxy"


def diagram() -> Iterator[str]:
    """Yield a Mermaid diagram. An arrow that follows from a path of others is left out."""
    yield "```mermaid"
    yield "flowchart TD"
    imports = package_imports()
    for package in sorted(imports):
        direct = sorted(
            target
            for target in imports[package]
            if not any(target in _reachable(imports, name) for name in imports[package] - {target})
        )
        if direct:
            yield f"  {package} --> {' & '.join(direct)}"
    yield "```"


def package_imports() -> Mapping[str, set[str]]:
    """Return the top-level packages and modules that each of them imports, at any place."""
    imports: dict[str, set[str]] = {}
    for file in sorted(PROXY.rglob("*.py")):
        package = file.relative_to(PROXY).parts[0].removesuffix(".py")
        if package not in ("__init__", "__main__"):
            targets = set(_imported(ast.parse(file.read_text()))) - {package}
            imports.setdefault(package, set()).update(targets)
    return {package: targets & imports.keys() for package, targets in imports.items()}


def _imported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module == "proxy":
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("proxy."):
            yield (node.module or "").split(".")[1]


def _reachable(imports: Mapping[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    pending = [start]
    while pending:
        for package in imports[pending.pop()] - reached:
            reached.add(package)
            pending.append(package)
    return reached
