"""Tasks and replies as Flower's records: one byte string each, see `fultr.federated.wire`."""

from __future__ import annotations

from flwr.app import ConfigRecord, RecordDict


def record_of(content: bytes) -> RecordDict:
    """A byte string as the only content of a Flower message."""
    return RecordDict({"fultr": ConfigRecord({"content": content})})


def content_of(record: RecordDict) -> bytes | None:
    """The byte string in a Flower message; None if that is another program's."""
    config = record.config_records.get("fultr") if set(record) == {"fultr"} else None
    content = None if config is None or set(config) != {"content"} else config["content"]
    return content if type(content) is bytes else None
