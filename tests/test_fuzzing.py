"""Whatever a file holds, it is read or refused in one line: a share of what `tests/help/fuzzing.py` tries."""

from __future__ import annotations

import pytest
from help.fuzzing import fuzzed, targets, tried

from fultr.core.errors import FultrError


@pytest.mark.parametrize("name", targets())
def test_damaged_files_are_read_or_refused_in_one_line(name, tmp_path):
    file, examples, read, _ = targets()[name]
    for example in examples:
        (tmp_path / file).write_bytes(example)
        assert tried(read, tmp_path / file) is None
        for left in tmp_path.glob(f"{file}*"):
            left.unlink()
    wrong = fuzzed(name, 60, 0, tmp_path)
    assert not wrong, "\n".join(f"{data[:200]!r}\n{said}" for data, said in wrong.values())


def test_what_is_wrong_is_noticed(tmp_path):
    """The checks can fail: a traceback, a message of two lines, an exception that Python ignores."""

    def two_lines(path):
        raise FultrError("one\ntwo")

    class Late:
        def __del__(self):
            raise ValueError("too late")

    assert "ZeroDivisionError" in str(tried(lambda path: 1 / 0, tmp_path))
    assert str(tried(two_lines, tmp_path)).startswith("not one line")
    assert str(tried(lambda path: str(Late()), tmp_path)) == "exception ignored: ValueError('too late')"
