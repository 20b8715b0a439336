"""The one exception that users are meant to see."""

from __future__ import annotations


class FultrError(Exception):
    """Bad input or wrong usage: one line that names the place, the value and the cause.

    The command line prints it and ends with exit code 2, without a traceback.

    >>> raise FultrError("data.txt, line 3: expected a grade, found 'x'")
    Traceback (most recent call last):
    fultr.core.errors.FultrError: data.txt, line 3: expected a grade, found 'x'
    """
