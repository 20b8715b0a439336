"""The index: what changed is read again and nothing else, faults leave it whole, and it stays within its folders."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from fultr.app.api import _is_program
from fultr.app.background import Background
from fultr.app.crawl import _spec, crawl
from fultr.app.home import Home
from fultr.app.index import Index
from fultr.app.reading import read_files
from fultr.app.text import Query
from fultr.app.words import Narrowed
from fultr.core.errors import FultrError

pytestmark = pytest.mark.process


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "files"
    (folder / "work").mkdir(parents=True)
    (folder / "pizza.md").write_text("# Pizza\nflour and tomatoes")
    (folder / "work" / "budget.txt").write_text("the rent is due in May")
    (folder / "work" / "readConfig.py").write_text("def read(): pass")
    return folder


@pytest.fixture
def index(tmp_path, files):
    with Index(Home.at(tmp_path / "home")) as opened:
        opened.add([files])
        yield opened


def found(index: Index, query: str, **narrowed: object) -> list[str]:
    ids = index.words.candidates(Query.of(query), Narrowed(**narrowed), 50)
    documents = index.catalogue.documents(list(ids))
    return [Path(documents[id_].path).name for id_ in ids if id_ in documents]


def test_only_what_changed_is_read_again(index, files):
    first = index.update()
    assert (first.read, first.removed, first.unchanged) == (3, 0, 0)
    assert found(index, "tomato") == found(index, "flour pizz") == found(index, "tomatoes ") == ["pizza.md"]
    assert found(index, "config") == found(index, "readconfig") == ["readConfig.py"]
    assert sorted(found(index, "work")) == ["budget.txt", "readConfig.py"]
    assert found(index, "rent", kinds=("code",)) == []
    assert found(index, "rent", kinds=("note",)) == ["budget.txt"]
    assert found(index, "rent", since=time.time() + 60) == []
    assert found(index, "rent", until=time.time() + 60, since=time.time() - 600) == ["budget.txt"]

    (files / "work" / "budget.txt").write_text("the deposit was paid in June")
    (files / "work" / "readConfig.py").rename(files / "readConfig.py")
    (files / "pizza.md").unlink()
    (files / "new.txt").write_text("brand new")
    second = index.update()
    assert (second.read, second.moved, second.removed, second.unchanged) == (2, 1, 1, 0)
    assert found(index, "rent ") == found(index, "tomatoes ") == []
    assert found(index, "deposit") == ["budget.txt"]
    assert found(index, "def ") == ["readConfig.py"]
    assert found(index, "work") == ["budget.txt"]
    assert index.update().unchanged == 3


def test_a_part_of_a_folder_can_be_updated_alone(index, files):
    index.update()
    (files / "pizza.md").write_text("calzone")
    (files / "work" / "budget.txt").unlink()
    changes = index.update(str(files / "work"))
    assert (changes.read, changes.removed, changes.unchanged) == (0, 1, 1)
    assert found(index, "calzone") == []
    assert index.update(str(files / "pizza.md")).read == 1
    assert found(index, "calzone") == ["pizza.md"]
    assert index.update(str(files.parent / "elsewhere")).removed == 0


def test_a_document_that_was_opened_is_the_same_after_a_change_and_a_move(index, files):
    index.update()
    (id_,) = index.words.candidates(Query.of("rent"), Narrowed(), 5)
    index.catalogue.put_open(id_, 1.0, 1, "rent")
    (files / "work" / "budget.txt").write_text("the rent was paid")
    index.update()
    (files / "work" / "budget.txt").rename(files / "paid.txt")
    index.update()
    assert [(document, Path(path).name) for document, _, _, path, _ in index.catalogue.opens()] == [(id_, "paid.txt")]


def test_links_out_of_a_folder_hidden_files_and_ignored_ones_are_left_out(tmp_path, files, index):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret outside")
    (files / "link").symlink_to(outside)
    (files / "secret.txt").symlink_to(outside / "secret.txt")
    (files / "loop").symlink_to(files)
    (files / ".hidden.txt").write_text("secret hidden")
    (files / ".gitignore").write_text("*.log\nbuild/\n")
    (files / "work" / ".gitignore").write_text("!keep.log\n")
    for name in ("a.log", "work/keep.log", "work/build/out.txt", "node_modules/x/y.js", "work/drop.bak"):
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text("secret here")
    os.mkfifo(files / "pipe.txt")
    index.add([], ["*.bak"])
    index.update()
    assert found(index, "secret") == ["keep.log"]
    assert [Path(path).name for path, _ in crawl(str(files), ["*.bak"])] == [
        "pizza.md", "budget.txt", "keep.log", "readConfig.py"]  # fmt: skip


def test_no_folder_stops_the_walk(tmp_path):
    """Folders within folders beyond what calls can be nested, a pipe for rules, a rule with many stars."""
    (tmp_path / "good.txt").write_text("x")
    (tmp_path / ("a" * 250)).write_text("x")
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "later.txt").write_text("x")
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / ".ignore").write_text("*a" * 100 + "b\n" + "**/a" * 50 + "b\n*[a-\n*t*er*.txt\n")
    below = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=below)
        inner = os.open("d", os.O_RDONLY, dir_fd=below)
        os.close(below)
        below = inner
    os.close(below)
    problems = []
    found = [Path(path).name for path, _ in crawl(str(tmp_path), on_problem=lambda *said: problems.append(said))]
    assert found == ["a" * 250, "good.txt"]
    subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)  # Python's own way calls itself for each folder
    assert problems == [(str(tmp_path) + "/d" * 201, "is within 200 folders: what is in it is not looked at")]


@given(
    st.lists(st.sampled_from(["a", "b", ".", "*", "**", "?", "[ab]", "[!a]", "/", "!"]), max_size=9).map("".join),
    st.lists(st.text("ab.", min_size=1, max_size=6), min_size=1, max_size=4),
)
def test_rules_mean_what_they_do_in_the_library(rule, names):
    try:
        plain = GitIgnoreSpec.from_lines([rule])
    except ValueError:
        return
    if rule.count("**") <= 2:
        assert _spec([rule]).check_file("/".join(names)).include == plain.check_file("/".join(names)).include


def test_whatever_happens_to_an_update_is_said(index, monkeypatch):
    monkeypatch.setattr(Index, "update", lambda *given, **more: [][0])
    background = Background(index.home)
    background._update(index, None)
    assert background.problem == "IndexError: list index out of range"


def test_a_maildir_keeps_its_hidden_folders(tmp_path):
    for folder in ("Mail/cur", "Mail/new", "Mail/.Sent/cur", ".secret"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "1.host").write_text("Subject: x\n\ny")
    names = [path.removeprefix(f"{tmp_path}/") for path, _ in crawl(str(tmp_path))]
    assert names == ["Mail/.Sent/cur/1.host", "Mail/cur/1.host", "Mail/new/1.host"]


def test_strange_names_are_indexed(index, files):
    strange = os.fsdecode(os.fsencode(str(files)) + b"/caf\xe9 <b>&\n.txt")
    Path(strange).write_text("unusual")
    index.update()
    (id_,) = index.words.candidates(Query.of("unusual"), Narrowed(), 5)
    assert index.catalogue.documents([id_])[id_].path == strange
    assert index.update().unchanged == 4


def test_what_cannot_be_read_is_said_and_found_by_name(index, files):
    (files / "broken.pdf").write_bytes(b"%PDF-1.4")
    changes = index.update()
    assert [(Path(path).name, why.split(":")[0]) for path, why in changes.problems] == [("broken.pdf", "is damaged")]
    assert found(index, "broken") == ["broken.pdf"]
    assert index.update().problems == []  # not tried again until it changes
    assert [Path(path).name for path, _ in index.catalogue.problems()] == ["broken.pdf"]


def test_a_folder_that_is_away_keeps_its_files(index, files):
    index.update()
    files.rename(files.with_name("unmounted"))
    changes = index.update()
    assert (changes.removed, changes.problems[0][0]) == (0, str(files))
    assert found(index, "tomatoes") == ["pizza.md"]
    files.with_name("unmounted").rename(files)
    assert index.update().unchanged == 3


def test_a_folder_that_may_not_be_read_keeps_its_files(index, files, monkeypatch):
    """As for whoever is not root."""
    index.update()
    scandir = os.scandir

    def refused(path):
        if path == str(files / "work"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    changes = index.update()
    assert (changes.removed, changes.problems) == (0, [(str(files / "work"), "cannot be read: Permission denied")])
    monkeypatch.undo()
    assert index.update().unchanged == 3


def test_a_file_that_changes_while_it_is_read_is_read_again(index, files):
    growing = files / "growing.mbox"
    growing.write_text("From a\nSubject: one\n\ntext\n")
    reading = read_files([str(growing)], 1)
    first = next(reading)
    assert [part.title for part in first.parts] == ["one"]
    with growing.open("a") as file:
        file.write("\nFrom b\nSubject: two\n\nlater\n")
    (last,) = reading
    assert last.stamp.size < growing.stat().st_size  # so the next update sees a difference
    index.update()
    assert found(index, "later") == ["growing.mbox"]


def test_a_process_that_dies_or_hangs_costs_one_file(files, monkeypatch):
    monkeypatch.setattr("fultr.app.reading.SECONDS", 0.0)
    late = {Path(one.path).name: one.problem for one in read_files([str(files / "pizza.md")], 1) if one.done}
    assert "took longer" in late["pizza.md"]


KILLED = """
import sys
from pathlib import Path
from fultr.app.home import Home
from fultr.app.index import Index
with Index(Home.at(Path(sys.argv[1]))) as index:
    index.add([Path(sys.argv[2])])
    index.update(on_progress=lambda progress: print(progress.done, flush=True))
"""


def test_killed_while_indexing_it_resumes_and_nothing_is_lost(tmp_path, monkeypatch):
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(90):
        (folder / f"{number}.txt").write_text(f"alpha number{number}")
    small = KILLED.replace("with Index", "import fultr.app.index as module\nmodule._BATCH_FILES = 7\nwith Index")
    for after in (20, 30):
        process = subprocess.Popen(
            [sys.executable, "-c", small, str(tmp_path / "home"), str(folder)], stdout=subprocess.PIPE, text=True
        )
        for line in process.stdout:
            if int(line) >= after:
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    with Index(Home.at(tmp_path / "home")) as index:
        changes = index.update()
        assert 0 < changes.unchanged < 90
        assert changes.read + changes.unchanged == 90
        assert len(index.words) == sum(index.catalogue.counts().values()) == 90
        for number in (0, 17, 89):
            assert found(index, f"number{number} ") == [f"{number}.txt"]


def test_what_only_the_words_know_does_not_show_and_is_replaced(index, files):
    """A process killed between the two commits: words has documents with ids that the catalogue gives to others."""
    writer = index.words.writer()
    for id_ in (1, 2, 3, 4):
        writer.put(id_, "ghost", "", "", "ghost", "note", 0)
    writer.commit()
    writer.close()
    assert found(index, "ghost") == []
    index.update()
    assert found(index, "ghost") == []
    assert found(index, "tomatoes") == ["pizza.md"]


def test_two_at_once_take_turns(tmp_path, files):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "home"), str(files)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate()[1] or process.returncode for process in both] == [0, 0]
    with Index(Home.at(tmp_path / "home")) as index:
        assert len(index.words) == 3


def test_bad_folders_and_a_damaged_catalogue_are_refused_in_one_line(tmp_path, index, files):
    with pytest.raises(FultrError, match="cannot be indexed: No such file"):
        index.add([tmp_path / "none"])
    with pytest.raises(FultrError, match="is not a folder"):
        index.add([files / "pizza.md"])
    with pytest.raises(FultrError, match="the index itself"):
        index.add([index.home.folder])
    other = Home.at(tmp_path / "other")
    other.catalogue.write_bytes(b"no database" * 100)
    with pytest.raises(FultrError, match="is damaged"):
        Index(other)
    assert index.home.folder.stat().st_mode & 0o077 == 0


FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))  # no file may grow beyond that, as on a full disk
from fultr.core.errors import FultrError
try:
    exec(KILLED)
except FultrError as error:
    print("said:", error, flush=True)
"""


def test_a_full_disk_is_said_and_costs_nothing(tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number}.txt").write_text(" ".join(f"word{number}x{i}" for i in range(4000)))
    done = subprocess.run(
        [sys.executable, "-c", f"KILLED = {KILLED!r}\n{FULL}", str(tmp_path / "home"), str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()[-1]
    assert said.startswith(f"said: {tmp_path}/home/")
    with Index(Home.at(tmp_path / "home")) as index:
        index.update()
        assert len(index.words) == sum(index.catalogue.counts().values()) == 40
        assert found(index, "word7x3999 ") == ["7.txt"]


@pytest.mark.parametrize(
    "ending", [".msi", ".lnk", ".COM", ".vbs", ".inetloc", ".pkg", ".flatpakref", ".exe", ".desktop"]
)
def test_what_any_system_starts_is_not_opened(tmp_path, ending):
    (tmp_path / f"a{ending}").touch()
    assert _is_program(str(tmp_path / f"a{ending}"))
    assert not _is_program(str(tmp_path / "a.pdf"))
