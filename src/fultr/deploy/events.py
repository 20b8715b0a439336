"""The server app's events as lines of JSON, in a file that does not grow without bound."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fultr.federated.events import Event

MOST_BYTES = 4_000_000
"""Of the file; then it becomes NAME.1, in place of the one before."""


@dataclass(frozen=True, eq=False)
class EventLog:
    """Events, each a line of JSON with time (UTC), what, words, round and device; any thread may write.

    A line that cannot be written is lost: training goes on.

    Attributes:
        path: the file, which need not exist yet.
        most: bytes.

    >>> import tempfile
    >>> log = EventLog(Path(tempfile.mkdtemp()) / "events.jsonl")
    >>> log.write(Event("refused", "round 2: device 4 refused: it refused", round=2, device=4))
    >>> line = json.loads(log.path.read_text())
    >>> line["what"], line["round"], line["device"]
    ('refused', 2, 4)
    """

    path: Path
    most: int = MOST_BYTES
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, event: Event) -> None:
        """Add an event."""
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **asdict(event)}) + "\n"
        with suppress(OSError), self._lock:
            with suppress(FileNotFoundError):
                if self.path.stat().st_size + len(line) > self.most:
                    self.path.replace(self.path.with_name(f"{self.path.name}.1"))
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
