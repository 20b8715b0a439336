"""The package: what is in the wheel and the source distribution, what an index shows, and the wheel at work."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEITHER = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it."""
    copy, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in ("src", "docs", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=NEITHER)
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, copy)
    (copy / "out").mkdir()
    (copy / "out" / "private.db").touch()  # must not leave
    (copy / "data.tsv").touch()
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", made, copy)
    return made


def run(*command: str | Path, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def metadata(built: Path) -> email.message.Message:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_string(wheel.read(name).decode("utf-8"))


@pytest.mark.process
def test_the_wheel_has_the_package_and_nothing_else(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    files = (path for path in (ROOT / "src" / "fultr").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert inside == {path.relative_to(ROOT / "src").as_posix() for path in files}
    assert {"fultr/py.typed", "fultr/__init__.pyi", "fultr/app/static/index.html"} <= inside


@pytest.mark.process
def test_the_source_distribution_builds_tests_and_documents(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as source:
        inside = {name.partition("/")[2] for name in source.getnames()}
    assert {"README.md", "LICENSE", "CITATION.cff", "Makefile", "constraints.txt", "mkdocs.yml"} <= inside
    assert {"docs/_site/hooks.py", "docs/figure.png", "tests/conftest.py", "tests/plain/__init__.py"} <= inside
    assert not [name for name in inside if name.startswith("out") or name.endswith((".db", ".tsv", ".pyc", ".nbi"))]


@pytest.mark.process
def test_an_index_can_show_it(built):
    """It renders, and every link leads somewhere: an index knows nothing of files beside it, and drops their images."""
    assert "PASSED" in run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir())
    told = metadata(built)
    text = told.get_payload()
    assert text.startswith("# fultr\n")
    assert "![" not in text
    assert "<img" not in text
    assert all(target.startswith("https://") for target in re.findall(r"\]\(([^)]*)\)", text))
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Requires-Python"] == ">=3.11"


@pytest.mark.process
def test_the_installed_wheel_works_from_another_folder(built, tmp_path):
    """In an environment of its own; the packages that it needs are lent to it."""
    place = tmp_path / "environment"
    venv.create(place, with_pip=False)
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    options = ["--no-deps", "--no-index", "--no-compile", "--quiet", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, next(built.glob("*.whl")))
    (own,) = place.rglob("site-packages")
    lent = [path for path in sys.path if path.endswith("-packages")]
    there = dict(env={**os.environ, "PYTHONPATH": os.pathsep.join([str(own), *lent])}, cwd=tmp_path)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert run(python.with_name("fultr"), "--version", **there) == f"fultr {version}\n"
    assert run(python, "-c", "import fultr; print(fultr.__file__)", **there).startswith(str(own))
    assert "fultr data inspect FOLDER" in run(python, "-m", "fultr", "--help", **there)


def test_the_description_of_an_index_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "PACKAGE.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    exec(example.replace("rounds=100", "rounds=5"), names)
    assert (tmp_path / "ranker.json").exists()


def test_the_description_says_what_the_readme_says():
    """Figures and rows that stand in both are the same."""
    readme, package = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "PACKAGE.md"))
    for number in re.findall(r"(?<= )\.\d{3}(?= )", package):
        assert number in readme
    cited = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"version: {cited['version']}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert cited["description"] in package
