"""The commands `fultr search ...`: private search over one's own files."""

from __future__ import annotations

import os
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fultr.cli.console import print_json, print_table, progress_bar, say
from fultr.cli.lazy import OrderedGroup
from fultr.cli.options import PATH, json_option
from fultr.core.errors import FultrError, one_line

if TYPE_CHECKING:
    from fultr.app.index import Changes, Index

_SHOWN_PROBLEMS = 20
_dir_option = click.option(
    "--dir", "folder", type=PATH, help="The application's folder.  [default: ~/.local/share/fultr/search]"
)


@click.group(cls=OrderedGroup, invoke_without_command=True)
@_dir_option
@click.option(
    "--port", default=0, type=click.IntRange(0, 65535), help="Port of the loopback interface.  [default: any]"
)
@click.option("--browser/--no-browser", default=True, help="Open the page in your browser, or only print its address.")
@click.pass_context
def search(context: click.Context, folder: Path | None, port: int, browser: bool) -> None:
    """Search your own files, on your own machine: see docs/app.md.

    Without a command, opens a page that searches as you type. It is served on the loopback interface, for whoever has
    its address; the index is kept up to date while it is open.

    \b
    Start with
      fultr search index ~/Documents ~/Mail
      fultr search
    """
    if context.invoked_subcommand is not None:
        if folder is not None:
            raise FultrError("--dir: expected after the command, as in fultr search index --dir FOLDER")
        return
    _check_installed()
    from fultr.app.home import Home
    from fultr.app.server import serve

    serve(
        Home.at(folder),
        port=port,
        browser=browser,
        on_ready=lambda address: say(f"{address}\nThe page is open until you press Ctrl-C."),
    )


def _check_installed(*besides: str) -> None:
    extras = "app,flower" if besides else "app"
    for name in ("tantivy", "pypdf", "defusedxml", "pathspec", "watchfiles", "starlette", "uvicorn", *besides):
        if find_spec(name) is None:
            raise FultrError(f"fultr search needs {name}: pip install 'fultr[{extras}]'")


def _index(folder: Path | None) -> Index:
    _check_installed()
    from fultr.app.home import Home
    from fultr.app.index import Index

    return Index(Home.at(folder))


@search.command()
@click.argument("folders", nargs=-1, type=PATH)
@click.option("--exclude", "excludes", multiple=True, help="Leave out what this pattern names, as in .gitignore.")
@_dir_option
@json_option
def index(folders: tuple[Path, ...], excludes: tuple[str, ...], folder: Path | None, as_json: bool) -> None:
    """Index FOLDERS, or bring the index of earlier ones up to date.

    Text, Markdown, web pages, PDF, Office documents, mail (mbox, Maildir), source code and manual pages are indexed by
    their content, other files by their name. What has not changed is not read again; a command that was interrupted
    resumes. Links are not followed; hidden files and what .gitignore and .ignore name are left out.

    \b
    Examples
      fultr search index ~/Documents ~/Mail
      fultr search index ~/work --exclude 'build/' --exclude '*.log'
      fultr search index
    """
    from fultr.app.text import shown

    with _index(folder) as opened:
        opened.add(folders, excludes)
        if not opened.catalogue.folders():
            raise FultrError("index: expected at least one folder, such as ~/Documents")
        changes = _update(opened)
        count = sum(opened.catalogue.counts().values())
    if as_json:
        print_json(
            {
                "read": changes.read,
                "moved": changes.moved,
                "removed": changes.removed,
                "unchanged": changes.unchanged,
                "problems": [[shown(path), why] for path, why in changes.problems],
                "documents": count,
            }
        )
        return
    for path, why in changes.problems[:_SHOWN_PROBLEMS]:
        say(f"{one_line(path, 400)}: {one_line(why)}")
    if len(changes.problems) > _SHOWN_PROBLEMS:
        say(f"and {len(changes.problems) - _SHOWN_PROBLEMS:,} more: fultr search status --problems")
    files = "file" if changes.read == 1 else "files"
    say(
        f"{changes.read:,} {files} read, {changes.moved:,} moved, {changes.removed:,} removed, {changes.unchanged:,} "
        f"unchanged; {count:,} documents in all"
    )


def _update(opened: Index) -> Changes:
    """Bring the index up to date, with a bar as soon as it is known how much there is to read."""
    from fultr.app.index import Progress
    from fultr.cli.console import Done

    with ExitStack() as stack:
        bar: list[Done] = []

        def show(progress: Progress) -> None:
            if not bar:
                bar.append(stack.enter_context(progress_bar(progress.total, "Reading")))
            bar[0](progress.done)

        return opened.update(processes=os.cpu_count() or 1, on_progress=show)


@search.command()
@click.argument("query")
@click.option("--why", is_flag=True, help="Show what the features add to each result's score.")
@_dir_option
@json_option
def find(query: str, why: bool, folder: Path | None, as_json: bool) -> None:
    """Search for QUERY, and print the results, best first. Nothing is logged.

    \b
    Example
      fultr search find "tax return 2025" --why
    """
    _check_installed()
    from fultr.app.home import Home
    from fultr.app.ranking import DISPLAYED, Finder, reasons
    from fultr.app.text import shown

    with Finder(Home.at(folder), logs=False) as finder:
        results = finder.find(query)
        found = [
            {
                "path": shown(one.document.path),
                "title": one.document.title,
                "passage": finder.shown_passage(one).text,
                "why": {reason.name: round(reason.adds, 3) for reason in reasons(results, i)},
            }
            for i, one in enumerate(results[:DISPLAYED])
        ]
        version = results.version
        indexed = bool(finder.index.catalogue.folders())
    if as_json:
        print_json({"query": query, "version": version, "results": found})
        return
    if not found:
        say("Nothing found." if indexed else "Nothing is indexed yet: fultr search index FOLDER")
    for one in found:
        print(one_line(str(one["path"]), 400))
        print(f"    {one_line(str(one['passage']), 110)}")
        if why and isinstance(one["why"], dict) and one["why"]:
            print("    " + ", ".join(f"{name} {adds:+.2f}" for name, adds in list(one["why"].items())[:6]))


@search.command()
@click.argument("folders", nargs=-1, required=True, type=PATH)
@_dir_option
def remove(folders: tuple[Path, ...], folder: Path | None) -> None:
    """Take FOLDERS out of the index. The folders themselves stay as they are.

    \b
    Example
      fultr search remove ~/Documents/old
    """
    with _index(folder) as opened:
        for path in folders:
            if not opened.catalogue.remove_folder(str(path.resolve())):
                raise FultrError(f"{path}: is not indexed; see fultr search status")
        changes = _update(opened)
    say(f"{changes.removed:,} files removed from the index")


@search.command()
@click.option("--problems", is_flag=True, help="List the files that could not be read, and why.")
@_dir_option
@json_option
def status(problems: bool, folder: Path | None, as_json: bool) -> None:
    """Show what is indexed.

    \b
    Example
      fultr search status --problems
    """
    from fultr.app.readers import KINDS
    from fultr.app.text import shown

    with _index(folder) as opened:
        folders, excludes = opened.catalogue.folders(), opened.catalogue.excludes()
        counts, found = opened.catalogue.counts(), opened.catalogue.problems()
        size = sum(file.stat().st_size for file in opened.home.folder.rglob("*") if file.is_file())
    if as_json:
        listed = [[shown(path), why] for path, why in found]
        print_json(
            {"folders": list(map(shown, folders)), "excludes": excludes, "documents": counts, "bytes": size,
             "problems": listed}
        )  # fmt: skip
        return
    if problems:
        for path, why in found:
            print(f"{one_line(path, 400)}: {one_line(why)}")
        return
    rows = [["folder", one_line(path, 400)] for path in folders] + [["left out", pattern] for pattern in excludes]
    rows += [[KINDS[kind].lower(), f"{count:,}"] for kind, count in counts.items()]
    rows += [["could not be read", f"{len(found):,}"], ["size of the index", f"{size / 1e6:,.1f} MB"]]
    print_table([["", "indexed"], *rows], left=2)


@search.command()
@click.option("--seeds", default=1, show_default=True, type=click.IntRange(1, 100), help="How often, each with others.")
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(1, 45), help="Rounds of the federation.")
@click.option("--searches", default=200, show_default=True, type=click.IntRange(100, 10_000),
              help="Searches of each person that are learnt from.")  # fmt: skip
@click.option("--severity", default=1.0, show_default=True, type=click.FloatRange(0, 4),
              help="How strongly people favour the top, in the mean: bias severity.")  # fmt: skip
@click.option("--first-seed", default=0, show_default=True, type=click.IntRange(0), help="The first seed.")
@click.option("--figure", type=PATH, help="Draw MRR of the rankers: FILE.png, FILE.svg or FILE.pdf.")
@json_option
def demo(
    seeds: int, rounds: int, searches: int, severity: float, first_seed: int, figure: Path | None, as_json: bool
) -> None:
    """Five people search, and a federation learns from it.

    Each has files of their own (sources of the standard library, manual pages, generated notes and mail) and habits.
    They use the page's own interface, two of them in a browser where Chromium is installed; a federation of the five
    trains over TLS, within each device's policy. At the end, how high the federated ranker puts what they look for, in
    searches that nobody learnt from: against BM25 alone, the default ranker, each person training alone, and the same
    clicks uncorrected; with personal layers on the devices that use one, and with exploration. Takes some minutes a
    seed. Everything is stopped and removed at the end.
    """
    import tempfile

    _check_installed("flwr")
    from fultr.cli.app_demo import draw_demo, run_demo
    from fultr.core.drawing import Kind, rendered
    from fultr.core.files import written_whole

    kinds: dict[str, Kind] = {".png": "png", ".svg": "svg", ".pdf": "pdf"}
    if figure is not None and figure.suffix not in kinds:
        raise FultrError(f"--figure: expected a file that ends with .png, .svg or .pdf, found {str(figure)!r}")
    found = []
    for seed in range(first_seed, first_seed + seeds):
        say(f"seed {seed}")
        with tempfile.TemporaryDirectory(prefix="fultr-search-demo-") as made:
            found.append(run_demo(Path(made), seed, rounds, searches, severity))
    if figure is not None:
        with written_whole(figure) as temporary:
            temporary.write_bytes(rendered(draw_demo(found), kinds[figure.suffix]))
    if as_json:
        quality = {name: [one[name] for one in found] for name in found[0]}
        print_json({"rounds": rounds, "searches": searches, "severity": severity, "MRR, NDCG@10": quality})
        return
    rows = [
        [name, *(_spread([one[name][i] for one in found]) for i in (0, 1)),
         _spread([one["federated"][0] - one[name][0] for one in found])]
        for name in found[0]
    ]  # fmt: skip
    print_table([["ranker", "MRR", "NDCG@10", "federated above it (MRR)"], *rows])


def _spread(values: list[float]) -> str:
    """The mean, with its standard error if there are several values."""
    from statistics import mean, stdev

    error = f" ± {stdev(values) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
    return f"{mean(values):.4f}{error}"
