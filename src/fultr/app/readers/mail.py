"""Mail: single messages (.eml, Maildir), and mailboxes (mbox) message by message."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterator
from datetime import datetime
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from typing import BinaryIO

from fultr.app.readers import MOST_TEXT, Part
from fultr.app.readers.web import text_of_html

_MOST_BYTES = 2_000_000  # of one message: the text comes first, attachments after it
_LONGEST_LINE = 65_536


def read(file: BinaryIO, name: str) -> Iterator[Part]:
    """One document a message: its subject is the title; sender, receivers and text are the text."""
    start = file.read(5)
    file.seek(0)
    if start == b"From ":
        for message in _messages(file):
            yield part_of_message(message)
    else:
        yield part_of_message(file.read(_MOST_BYTES))


def _messages(file: BinaryIO) -> Iterator[bytes]:
    """The messages of a mailbox: each begins with a line "From ..." after an empty one. Long ones are cut."""
    lines: list[bytes] = []
    size, blank, cut = 0, True, False
    while line := file.readline(_LONGEST_LINE):
        if blank and line.startswith(b"From ") and not cut:
            if lines:
                yield b"".join(lines)
            lines, size = [], 0
        elif size < _MOST_BYTES:
            lines.append(line)
            size += len(line)
        blank = line in (b"\n", b"\r\n")
        cut = not line.endswith(b"\n")  # the rest of a long line follows
    if lines:
        yield b"".join(lines)


def part_of_message(data: bytes) -> Part:
    """A message as a document."""
    message = email.message_from_bytes(data, policy=email.policy.default)
    people = [_header(message, name) for name in ("From", "To", "Cc")]
    attached = [name for part in message.iter_attachments() if (name := part.get_filename())] if _whole(message) else []
    text = "\n".join([*filter(None, people), _body(message), *attached])
    return Part("mail", _header(message, "Subject")[:200], text[:MOST_TEXT], _time(message))


def _header(message: EmailMessage, name: str) -> str:
    try:
        return " ".join(str(message.get(name, "")).split())
    except Exception:  # the parser of headers fails in many ways on bad ones
        return ""


def _whole(message: EmailMessage) -> bool:
    return message.get_content_maintype() == "multipart"


def _body(message: EmailMessage) -> str:
    part = message.get_body(("plain", "html"))
    if part is None:
        return ""
    try:
        text = str(part.get_content())
    except (LookupError, ValueError, KeyError):  # an unknown or wrong encoding
        payload = part.get_payload(decode=True)
        text = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else ""
    return text_of_html(text)[0] if part.get_content_subtype() == "html" else text


def _time(message: EmailMessage) -> float | None:
    try:
        found: datetime = parsedate_to_datetime(_header(message, "Date"))
        return found.timestamp()
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
