"""The examples of the pages on click logs run, from the shell and in Python, on sample logs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import sklearn
from help.commands import fultr
from sklearn.model_selection import GridSearchCV, GroupKFold

import fultr as package

DOCS = Path(__file__).parents[2] / "docs"
SIZES = (
    ("--clicks 1000000 --users 50000", "--clicks 2000 --users 100"),
    (r"clicks$", "clicks --clicks 3000 --users 300"),
)

pytestmark = pytest.mark.slow


def examples(page: str, language: str, has: str) -> list[str]:
    """The page's examples in a language that have some text; "" is the shell's."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [block for kind, block in blocks if kind == language and has in block]


def run(block: str) -> str:
    """Run a shell example, line by line; what its last line printed."""
    said = ""
    for line in block.splitlines():
        command = line.split("#")[0].strip()
        for whole, part in SIZES:
            command = re.sub(whole, part, command)
        program, *words = command.split()
        assert program == "fultr"
        done = fultr(*words)
        assert done.code == 0, (line, done.err)
        said = done.out
    return said


@pytest.fixture(scope="module")
def frame():
    return package.sample_clicks(clicks=3000, users=200).table().to_pandas()


def test_from_a_log_to_a_ranker_and_a_comparison_from_the_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (way,) = examples("click-logs.md", "", "fultr data clicks")
    assert "Would ranker.json get more clicks than logged? Yes" in run(way)
    for name in ("old.json", "new.json"):
        shutil.copy("ranker.json", name)
    (comparisons,) = examples("click-log-files.md", "", "fultr compare")
    assert '"answer": "inconclusive"' in run(comparisons)  # a ranker with itself
    assert Path("train.png").stat().st_size > 10_000 < Path("compared.png").stat().st_size


def test_sample_logs_from_the_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (samples,) = examples("click-log-files.md", "", "fultr data clicks")
    run(samples)
    assert package.read_click_log("long.csv").impressions > 10_000
    assert package.read_click_log("clicks.parquet").impressions > 2000
    assert Path("clicks.truth.json").exists()


def test_from_a_table_to_a_ranker_and_a_grid_search(frame, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, search = examples("click-logs.md", "python", "")
    features = [name for name in frame if name.startswith("f")]
    names = {"log": frame, "features": features, "candidates": frame[:40]}
    exec(first, names)
    assert "Examination" in capsys.readouterr().out
    places = names["places"][frame[:40]["query"] == frame["query"][0]]
    assert sorted(places) == list(range(1, len(places) + 1))
    assert package.Ranker.load("ranker.json").feature_names == tuple(features)
    given = {"X": frame[features], "clicks": frame["click"], "query": frame["query"], "rank": frame["rank"]}
    names = {"sklearn": sklearn, "fultr": package, "GridSearchCV": GridSearchCV, "GroupKFold": GroupKFold, **given}
    exec(search, names)
    assert set(names["search"].best_params_) == {"model"}
    assert np.isfinite(names["search"].best_score_)


def test_samples_and_comparisons_in_python(frame):
    (sample,) = examples("click-log-files.md", "python", "sample_clicks")
    names = {"fultr": package}
    exec(sample, names)
    assert list(names["frame"])[:9] == ["user", "session", "query", "document", "rank", "click", "policy", "f1", "f2"]
    (comparison,) = examples("click-log-files.md", "python", "compare_rankers")
    ranker = package.UnbiasedRanker("linear")
    features = [name for name in frame if name.startswith("f")]
    ranker.fit(frame[features], frame["click"], query=frame["query"], rank=frame["rank"])
    names = {"fultr": package, "frame": frame, "ranker": ranker}
    exec(comparison, names)
    assert names["found"].difference.answer in ("yes", "no", "inconclusive")


def test_a_long_table_in_a_file(tmp_path):
    (table,) = examples("click-log-files.md", "", "user,session,query")
    (tmp_path / "long.csv").write_text(table)
    log = package.read_click_log(tmp_path / "long.csv")
    assert (log.impressions, log.features.shape) == (2, (2, 2))


def test_devices_from_the_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fultr("data", "clicks", "clicks.csv", "--clicks", 500, "--users", 20).code == 0
    text = (DOCS / "click-log-files.md").read_text(encoding="utf-8").split("\n## Devices\n")[1]
    import_, export = (" ".join(found.split()) for found in re.findall(r"`(fultr\s+device\s[^`]*)`", text))
    run(import_)
    device = min(Path("devices").rglob("*.db"))
    run(export.replace("device.db", str(device)))
    assert package.read_click_log("mine.tsv").impressions > 5
