"""What a document's features are, in one line of text that devices and the server can compare.

A log with the right number of features in another order is not the same: its schema has another digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence


def schema_text(features: Sequence[str] | int, normalised: bool = True) -> str:
    """The schema: the names of the features in order, or how many there are; and if they are not normalised, that.

    >>> schema_text(["title match", "freshness"]), schema_text(519, normalised=False)
    ('["title match", "freshness"]', '{"features": 519, "normalised": false}')
    """
    plain = int(features) if isinstance(features, int) else list(features)
    return json.dumps(plain if normalised else {"features": plain, "normalised": False})


def schema_digest(text: str) -> str:
    """SHA-256 of a schema.

    >>> schema_digest(schema_text(["a", "b"])) == schema_digest(schema_text(["b", "a"]))
    False
    """
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
