"""Where the application keeps what it knows: one folder that only its user may read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fultr.core.errors import FultrError


@dataclass(frozen=True)
class Home:
    """The application's folder.

    A node (`fultr node`) can have the same folder: its log and its rankers have the same names there.

    Attributes:
        folder: of the application.
    """

    folder: Path

    @classmethod
    def at(cls, folder: Path | None) -> Home:
        """A folder, created if need be; None: the usual one, `~/.local/share/fultr/search`."""
        if folder is None:
            base = os.environ.get("XDG_DATA_HOME", "")
            folder = (Path(base) if base else Path("~/.local/share").expanduser()) / "fultr" / "search"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if folder.stat().st_mode & 0o077:
                folder.chmod(0o700)
        except OSError as error:
            raise FultrError(f"{folder}: cannot create this folder: {error.strerror or error}") from None
        return cls(folder.resolve())

    @property
    def catalogue(self) -> Path:
        """Files, documents, their text, and which were opened."""
        return self.folder / "catalogue.db"

    @property
    def words(self) -> Path:
        """The inverted index."""
        return self.folder / "words"

    @property
    def log(self) -> Path:
        """Impressions and clicks: the device's log."""
        return self.folder / "device.db"

    @property
    def rankers(self) -> Path:
        """The rankers that a node was given."""
        return self.folder / "rankers"

    @property
    def lock(self) -> Path:
        """Held by whoever changes the index."""
        return self.folder / ".index.lock"
