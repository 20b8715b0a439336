"""Damaged inputs for every reader: whatever a file holds, it is read, or refused in one line.

`python tests/help/fuzzing.py 100000` tries so many, in processes with little memory, and prints what went wrong.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fultr.clicks.files import read_click_log
from fultr.clicks.impressions import ImpressionLog
from fultr.clicks.tables import table_of, write_click_log
from fultr.core.errors import FultrError
from fultr.data.layouts import load_path
from fultr.data.letor.reader import read_letor
from fultr.device.conversion import fill_from_click_log
from fultr.device.log import DeviceLog
from fultr.device.node_settings import NodeSettings
from fultr.device.policy import DevicePolicy
from fultr.federated.federation import FederationSettings
from fultr.rankers.ranker import Ranker, digest_of
from fultr.rankers.versions import Versions, read_ranker
from fultr.study.experiment_files import read_experiment

TOKENS = [
    *(b"\x00", b"\r", b"\n", b"\r\n", b"\t", b",", b'"', b"'", b" ", b";", b"|", b":", b"#", b"=", b"\\", b"\xff"),
    *(b"-1", b"0", b"1", b"2", b"nan", b"NaN", b"inf", b"-inf", b"1e999", b"1e-999", b"9" * 25, b"9" * 5000, b"0.5"),
    *(b"true", b"false", b"null", b"[", b"]", b"{", b"}", b"[[", b"[" * 500, b"qid:", b"query", b"rank", b"click"),
    *(b"documents", b"user", b"\xed\xa0\x80", "\u2028é\u202e".encode(), b"<", b">", b"</", b"&", b"&#0;", b"Q", b"C"),
    *(b"\xef\xbb\xbf", b"1.5", b"clicks", b"T"),
]  # fmt: skip
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e300, float("nan"), float("inf"), "", "x", "1"),
    *([], {}, [[]], [True], ["0.5"], [None], {"a": 1}, "a" * 300, "\n", "\ud800", [1, 2, 3], [1e39]),
]


def mutated(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """The data with one to four things wrong."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        size = len(found)
        begin = rng.randrange(size + 1)
        end = min(size, begin + rng.choice((0, 1, 2, 8, 64)))
        match rng.randrange(8):
            case 0 if size:
                found[rng.randrange(size)] = rng.randrange(256)
            case 1:
                del found[begin:end]
            case 2:
                found[begin:end] = rng.choice(TOKENS)
            case 3:
                found[begin:begin] = rng.choice(TOKENS)
            case 4:
                found[begin:begin] = found[begin:end] * rng.choice((1, 2, 50))
            case 5:
                del found[rng.randrange(size + 1) :]
            case 6 if other:
                at = rng.randrange(len(other))
                found[begin:end] = other[at : at + rng.choice((1, 8, 64))]
            case _ if size:
                found[rng.randrange(size)] ^= 1 << rng.randrange(8)
    return bytes(found)


def mutated_json(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """JSON with some values replaced, its digest put right; or bytes that are wrong anywhere."""
    if rng.random() < 0.4:
        return mutated(data, rng, other)
    content = json.loads(data)
    for _ in range(rng.choice((1, 1, 2))):
        holder, key = content, rng.choice(list(content))
        while isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.7:
            holder = holder[key]
            key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        if isinstance(holder, dict) and rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = rng.choice(VALUES)
        if not content:
            break
    if "digest" in content and rng.random() < 0.9:
        content["digest"] = digest_of(content)
    return json.dumps(content).encode("utf-8", "surrogatepass")


def _log() -> ImpressionLog:
    rng = np.random.default_rng(0)
    documents = np.array([rng.permutation(5)[:3] for _ in range(8)])
    documents[3, 2] = -1
    clicks = (rng.random(documents.shape) < 0.4) & (documents >= 0)
    features = rng.random((8, 3, 2)).astype(np.float32)
    return ImpressionLog.from_arrays([f"q{i % 3}" for i in range(8)], documents, clicks, list("aabbccab"), features)


def _written(write: Callable[[Path], object], name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


def _version() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        ranker = Ranker(np.float32([1, 2]), np.array([1, 2]))
        Versions(folder).write(ranker, parent=None, configuration={"a": 1}, metrics={"ndcg": 0.5})
        return next(Path(folder).glob("v*.json")).read_bytes()


def _device() -> bytes:
    def write(path: Path) -> None:
        with DeviceLog.open(path, features=["a", "b"], retention=None) as log:
            for i in range(3):
                log.log_click(log.log_impression(f"q{i}", [[0.1, i], [0.5, 2]], time=float(i)), 1, time=float(i))

    return _written(write, "device.db")


def _import(path: Path) -> None:
    log = read_click_log(path)
    if log.features is not None and log.impressions < 50:
        with tempfile.TemporaryDirectory() as folder:
            fill_from_click_log(log, folder)


def _open_device(path: Path) -> None:
    with DeviceLog.open(path, retention=None) as log:
        log.records()
        log.export(io.StringIO())


def _text(layout: Any, name: str) -> bytes:
    return _written(lambda path: write_click_log(_log(), path, layout), name)


LETOR = b"".join(b"%d qid:%d 1:%.2f 3:0.5 7:%d # doc %d\n" % (i % 3, i // 4, i / 7, i, i) for i in range(12))
CATALOGUE = sorted((Path(__file__).parents[2] / "src" / "fultr" / "study" / "catalogue").glob("*.toml"))
FEDERATION = b'features = 5\nrounds = 10\nleast-devices = 3\nclient-rate = 0.1\naggregation = "clipped"\n'
NODE = b'server = "a:1"\nlog = "device.db"\nrankers = "rankers"\nslowest_poll = 15.0\n[policy]\nleast_clicks = 20\n'


YANDEX = "".join(f"{i // 2}\t{i}\tQ\t{i % 3}\t0\t7\t{i}\t5\n{i // 2}\t{i}\tC\t5\n" for i in range(8))
TIANGONG = "<?xml version='1.0'?><t>" + "".join(
    f"<session num='{i}'><interaction num='1'><query_id>q{i}</query_id><results><result rank='1'><docid>d</docid>"
    f"</result><result rank='2'><docid>e{i}</docid></result></results><clicked><click><rank>{i}</rank></click>"
    "</clicked></interaction></session>"
    for i in range(3)
) + "</t>"  # fmt: skip


AOL = b"".join(b"%d qid:%d 1:%d.5 2:0.25 # d%d\n" % (i % 3 == 0, i // 3, i, i % 5) for i in range(12))
METADATA = b"qid,user_id,timestamp,query,target_doc_id,candidate_doc_ids\n" + b"".join(
    b"%d,%d,2006-03-0%d 10:00:00,\"cats, dogs\",d1,\"['d1', 'd2', 'd3']\"\n" % (i, i % 2, i + 1) for i in range(5)
)


def _read_aol(path: Path) -> None:
    """One of the two files is damaged, the other one is whole; it is read as a click log and as judged data."""
    other, whole = ("metadata.csv", METADATA) if path.name == "letor.txt" else ("letor.txt", AOL)
    (path.parent / other).write_bytes(whole)
    read_click_log(path.parent)
    load_path(path.parent, cache=False)


def _baidu(packed: str) -> bytes:
    table = pa.table(
        {
            "query_id": ["1", "2"],
            "url_md5": [["x", "y"], ["u", "v"]],
            "click": [[0, 1], [1, 0]],
            "position": [[1, 2], [2, 1]],
            "query_document_embedding": [[[1.0, 0.5], [2.0, 0.25]], [[3.0, 1.0], [4.0, 2.0]]],
        }
    )
    return _written(lambda path: pq.write_table(table, path, compression=packed), "part.parquet")


def targets() -> dict[str, tuple[str, list[bytes], Callable[[Path], object], Callable[..., bytes]]]:
    """By name: what the file is called, examples, what reads it, and how it is damaged."""
    ranker = _written(Ranker(np.float32([1, 2]), np.array([1, 2]), feature_names=("a", "b")).save, "r.json")
    parquet = [_text("pages", "log.parquet"), _text("rows", "log.parquet")]
    plain = io.BytesIO()
    pq.write_table(table_of(_log(), "rows"), plain, compression="none", use_dictionary=False)
    tables = [_text("pages", "log.tsv"), _text("rows", "log.tsv"), b"a\tx,y\t0,1\nb\ty,z\t1,0\n"]
    commas = [_text("pages", "log.csv"), _text("rows", "log.csv")]
    return {
        "letor": ("data.txt", [LETOR], read_letor, mutated),
        "packed letor": ("data.txt.gz", [gzip.compress(LETOR, mtime=0)], read_letor, mutated),
        "tab-separated": ("log.tsv", tables, read_click_log, mutated),
        "comma-separated": ("log.csv", commas, read_click_log, mutated),
        "parquet": ("log.parquet", [*parquet, plain.getvalue()], read_click_log, mutated),
        "yandex": ("log.txt", [YANDEX.encode()], read_click_log, mutated),
        "tiangong": ("log.xml", [TIANGONG.encode()], read_click_log, mutated),
        "baidu": ("part.parquet", [_baidu("zstd"), _baidu("none")], read_click_log, mutated),
        "aol": ("letor.txt", [AOL, AOL.replace(b" #", b"\n#")], _read_aol, mutated),
        "aol metadata": ("metadata.csv", [METADATA], _read_aol, mutated),
        "packed click log": ("log.csv.gz", [gzip.compress(commas[1], mtime=0)], read_click_log, mutated),
        "ranker": ("ranker.json", [ranker], Ranker.load, mutated_json),
        "version": ("version.json", [_version()], read_ranker, mutated_json),
        "experiment": ("mine.toml", [path.read_bytes() for path in CATALOGUE], read_experiment, mutated),
        "federation": ("federation.toml", [FEDERATION], FederationSettings.read, mutated),
        "node": ("node.toml", [NODE], NodeSettings.read, mutated),
        "policy": ("node.toml", [NODE], DevicePolicy.read, mutated),
        "device import": ("log.csv", commas, _import, mutated),
        "device log": ("device.db", [_device()], _open_device, mutated),
    }


@contextmanager
def ignored_exceptions() -> Iterator[list[str]]:
    """What Python would print as "Exception ignored"."""
    found: list[str] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: found.append(repr(unraisable.exc_value))
    try:
        yield found
    finally:
        sys.unraisablehook = before


def tried(read: Callable[[Path], object], path: Path) -> str | None:
    """What is wrong with how a file is read; None if it is read, or refused in one line."""
    with ignored_exceptions() as ignored, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read(path)
        except FultrError as error:
            if "\n" in str(error) or "\r" in str(error) or len(str(error)) > 2000:
                return f"not one line: {str(error)[:200]!r}"
        except Exception as error:
            return "".join(traceback.format_exception(error, limit=-4))
    return f"exception ignored: {ignored[0]}" if ignored else None


def fuzzed(name: str, count: int, seed: int, folder: Path) -> dict[str, tuple[bytes, str]]:
    """What went wrong with so many damaged inputs, by its last line, with an example of each."""
    file, examples, read, damage = targets()[name]
    rng = random.Random(f"{name} {seed}")
    wrong: dict[str, tuple[bytes, str]] = {}
    path = folder / file
    for _ in range(count):
        data = damage(rng.choice(examples), rng, rng.choice(examples))
        for left in folder.glob(f"{file}*"):
            left.unlink()
        path.write_bytes(data)
        said = tried(read, path)
        if said is not None:
            wrong.setdefault(said.strip().splitlines()[-1][:100], (data, said))
    return wrong


def _one(arguments: tuple[str, int, int]) -> tuple[str, int, dict[str, tuple[bytes, str]]]:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    name, count, seed = arguments
    with tempfile.TemporaryDirectory() as folder:
        return name, count, fuzzed(name, count, seed, Path(folder))


def main(total: int, first: int = 0) -> None:
    """Try so many damaged inputs, spread over all readers."""
    from concurrent.futures import ProcessPoolExecutor, as_completed

    names = list(targets())
    block = 250
    tasks = [(names[i % len(names)], block, first + i) for i in range(total // block)]
    done = 0
    with ProcessPoolExecutor(2) as pool:
        for task in as_completed([pool.submit(_one, task) for task in tasks]):
            name, count, wrong = task.result()
            done += count
            for said, (data, trace) in wrong.items():
                print(f"--- {name}: {said}\n{data[:300]!r}\n{trace}", flush=True)
    print(f"{done:,} damaged inputs")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
