"""The benchmarks that need little: what they measure, never how long it takes."""

from __future__ import annotations

from fultr.cli.bench.privacy import secure_sums


def test_secure_sums_are_measured_for_devices_and_server():
    rows = secure_sums((4, 25))
    assert [name for name, *_ in rows if not name.startswith(" ")] == [
        "4 devices, all are neighbours: a device",
        "25 devices, all are neighbours: a device",
    ]
    assert [unit for _, _, unit, _ in rows] == ["ms", "ms", "ms", "ms", "ms", "s"] * 2
    assert all(value > 0 for _, value, *_ in rows)
