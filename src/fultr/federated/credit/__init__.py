"""Credit: what one impression's clicks are worth to each displayed document; one per file, one row each here.

A kind of credit is a module with one function, `credit(records, examination, relevance)`, which gives float64
[impressions, K], computed before training; documents with credit 0 take no step. `examination` [impressions, K] is the
probability that each rank was examined, `relevance` the estimator's relevance function F, if there is one.
"""

from __future__ import annotations

from fultr.core.kinds import Kinds

CREDITS = Kinds("credit", {"ips": "fultr.federated.credit.ips", "none": "fultr.federated.credit.none"})
