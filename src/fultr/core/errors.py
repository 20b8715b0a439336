"""The one exception that users are meant to see."""

from __future__ import annotations


class FultrError(Exception):
    """Bad input or wrong usage: one line that names the place, the value and the cause.

    The command line prints it and ends with exit code 2, without a traceback.

    >>> raise FultrError("data.txt, line 3: expected a grade, found 'x'")
    Traceback (most recent call last):
    fultr.core.errors.FultrError: data.txt, line 3: expected a grade, found 'x'
    """


def one_line(text: str, most: int = 200) -> str:
    r"""A text that somebody else wrote, fit for a terminal, a log or a file: one line, nothing that is not printed.

    >>> one_line("a\nb \x1b[2J \ud800 c")
    'a b ?[2J ? c'
    """
    plain = "".join(sign if sign.isprintable() else " " if sign.isspace() else "?" for sign in text[: 4 * most])
    return " ".join(plain.split())[:most]
