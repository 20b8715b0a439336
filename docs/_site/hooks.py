"""What the site shows that does not stand in docs/: pages of the repository, the reference, notebooks with results.

Links are written as they work in the repository, and rewritten here: README.md becomes the first page, source files
that are linked to become pages with their text.
"""

from __future__ import annotations

import ast
import base64
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parents[2]
MOVED = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
ASSETS = ("iframe-worker.js", "site.css")
SECTIONS = {  # packages in the order of their pages, with what a reader looks for in them
    "learn": "Fit and predict",
    "clicks": "Click logs and examination",
    "data": "Data sets",
    "rankers": "Rankers and metrics",
    "federated": "Federated training",
    "study": "Simulation",
    "device": "On a device",
    "core": "Errors",
}
LINK = re.compile(r"(\]\()([^)\s#]*)((?:#[^)\s]*)?\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages of the reference to the navigation."""
    pages = [uri for uri, _ in reference()]
    titles = {f"reference/{package}.md": title for package, title in SECTIONS.items()}
    for section in config.nav or []:
        if "Reference" in section:
            section["Reference"][:0] = [{titles.get(uri, "All names"): uri} for uri in pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages that stand elsewhere, and results in place of notebooks."""

    def add(uri: str, content: str | bytes) -> None:
        files.append(File.generated(config, uri, content=content))

    for name, uri in MOVED.items():
        add(uri, (ROOT / name).read_text(encoding="utf-8"))
    for name in ASSETS:
        add(f"assets/{name}", (Path(__file__).parent / name).read_bytes())
    for uri, text in reference():
        add(uri, text)
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in MOVED]
    texts += [
        Path(file.abs_src_path).read_text(encoding="utf-8") for file in files.documentation_pages() if file.abs_src_path
    ]
    for path in sorted({found for text in texts for found in sources_in(text)}):
        add(f"source/{path}.md", source_page(path))
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        page, pictures = executed(Path(file.abs_src_path or ""))
        uri = file.src_uri.removesuffix(".ipynb")
        add(f"{uri}.md", page)
        for name, picture in pictures.items():
            add(f"{posixpath.dirname(uri)}/{name}", picture)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links that work in the repository work on the site."""
    here = page.file.src_uri
    written = {moved: name for name, moved in MOVED.items()}.get(here, f"docs/{here}")

    def moved(link: re.Match[str]) -> str:
        begin, target, end = link.groups()
        if not target or ":" in target or here.startswith(("reference/", "source/")):
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(written), target))
        if path in MOVED:
            uri = MOVED[path]
        elif path.startswith("docs/"):
            uri = path.removeprefix("docs/")
            if uri.endswith(".ipynb") and uri.removesuffix(".ipynb") != here.removesuffix(".md"):  # not a download
                uri = uri.removesuffix(".ipynb") + ".md"
        elif (ROOT / path).exists():
            uri = f"source/{path}.md"
        else:
            raise PluginError(f"{written}: links to {target}, which is not there")
        return begin + posixpath.relpath(uri, posixpath.dirname(here) or ".") + end

    return LINK.sub(moved, markdown)


def sources_in(text: str) -> set[str]:
    """The files and folders outside docs/ that a page links to."""
    return {match[2].removeprefix("../") for match in LINK.finditer(text) if match[2].startswith(("../src/", "src/"))}


def source_page(path: str) -> str:
    """A page with a file's text, or with the files of a folder one below the other."""
    place = ROOT / path
    parts = sorted(file for file in place.iterdir() if file.is_file()) if place.is_dir() else [place]
    text = [f"# {path}\n"]
    for part in parts:
        if place.is_dir():
            text.append(f"## {part.name}\n")
        kind = {".py": "python", ".toml": "toml", ".js": "javascript"}.get(part.suffix, "text")
        text.append(f"````{kind}\n{part.read_text(encoding='utf-8').rstrip()}\n````\n")
    return "\n".join(text)


def reference() -> Iterator[tuple[str, str]]:
    """A page for each package with public names, from the stub that lists them."""
    stub = ast.parse((ROOT / "src" / "fultr" / "__init__.pyi").read_text(encoding="utf-8"))
    names: dict[str, list[tuple[str, str]]] = {package: [] for package in SECTIONS}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names[node.module.split(".")[0]] += [(alias.asname or alias.name, node.module) for alias in node.names]
    pages = {}
    rows = ["# All names\n", "What `import fultr` gives.\n", "| | |", "|---|---|"]
    for package, title in SECTIONS.items():
        if not names[package]:
            continue
        text = [f"# {title}\n"]
        for name, module in sorted(names[package], key=lambda found: found[0].lower()):
            text.append(f"::: fultr.{module}.{name}\n")
        listed = ", ".join(f"[`{name}`][fultr.{module}.{name}]" for name, module in sorted(names[package]))
        rows.append(f"| [{title}]({package}.md) | {listed} |")
        pages[f"reference/{package}.md"] = "\n".join(text)
    yield "reference/index.md", "\n".join(rows) + "\n"
    yield from pages.items()


def executed(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as a page, run from a folder of its own, and the pictures that it drew."""
    import tempfile

    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        try:
            NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
        except CellExecutionError as error:
            raise PluginError(f"{path.name}: {error}") from None
    text, pictures = [], {}
    for cell in book.cells:
        if cell.cell_type == "markdown":
            text.append(cell.source)
            continue
        text.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            if output.get("name") == "stderr":  # what is under way, such as that code is compiled
                continue
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                text.append(f"![{output.metadata.get('alt', 'What this draws')}]({name})")
            elif "text/html" in data:
                text.append(f'<div class="output" markdown="0">{data["text/html"]}</div>')
            else:
                shown = data.get("text/plain", output.get("text", ""))
                text.append(f'<div class="output" markdown="1">\n\n```text\n{shown.rstrip()}\n```\n\n</div>')
    text.insert(
        1, f"*This page is a notebook, and was run when it was made: [{path.name}]({path.name}).*{{ .notebook }}"
    )
    return "\n\n".join(text) + "\n", pictures


os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
