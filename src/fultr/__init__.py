"""Federated unbiased learning to rank: rankers trained from biased clicks that never leave the users' devices.

The public names are listed once, in __init__.pyi, and imported when they are first used: a device needs few of them.

>>> import fultr
>>> data = fultr.load("synthetic", cache=False)
>>> run = fultr.simulate(data, fultr.FedIPS(), clients=200, rounds=5, seed=0)
>>> run.ranker
Ranker(linear, 64 features)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
