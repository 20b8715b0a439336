"""Compiled code that is chosen by the type of a value: one generic function, one implementation per kind.

Numba tells `NamedTuple` classes apart and finds code that was compiled for one of them in its cache on disk, which
it does for neither closures nor functions that are passed as arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from numba import njit
from numba.core import event
from numba.extending import overload

_Code = TypeVar("_Code", bound=Callable[..., Any])


def implements(generic: Callable[..., Any], kind: type) -> Callable[[_Code], _Code]:
    """Take the decorated function for calls of `generic`, from compiled code, whose first argument is a `kind`.

    >>> from typing import NamedTuple
    >>> class Square(NamedTuple):
    ...     side: float
    >>> def area(shape): ...
    >>> @implements(area, Square)
    ... def _(shape):
    ...     return shape.side**2
    >>> njit(lambda shape: area(shape))(Square(3.0))
    9.0
    """

    def register(code: _Code) -> _Code:
        def choose(first: Any, *others: Any) -> _Code | None:
            return code if getattr(first, "instance_class", None) is kind else None

        overload(generic, jit_options={"forceinline": True}, strict=False)(choose)
        return code

    return register


def compiled_for(kernel: _Code, kind: object) -> _Code:
    """The kernel, to be called with a value of some kind.

    Numba's cache on disk names the classes that it holds code for, and a process that cannot import one of them cannot
    read any of it. Code for a kind that does not come with fultr is therefore compiled in every process anew.
    """
    return kernel if type(kind).__module__.startswith("fultr.") else _uncached(kernel)


@cache
def _uncached(kernel: Any) -> Any:
    return njit(nogil=True)(kernel.py_func)


class _First(event.Listener):
    def __init__(self, tell: Callable[[], object]) -> None:
        self._tell, self._told = tell, False

    def on_start(self, event: Any) -> None:
        if not self._told:
            self._told = True
            self._tell()

    def on_end(self, event: Any) -> None:
        pass


@contextmanager
def before_compiling(tell: Callable[[], object]) -> Iterator[None]:
    """Within it, `tell` is called once before anything is compiled; never, if all that is called is in the cache.

    >>> with before_compiling(lambda: print("one moment")):
    ...     print(njit(lambda x: x + 1)(2), njit(lambda x: x + 2)(2))
    one moment
    3 4
    """
    with event.install_listener("numba:compile", _First(tell)):
        yield


@contextmanager
def announced(seconds: int) -> Iterator[None]:
    """Say on stderr that code is compiled, if it is: the first time after an installation. Also decorates a function.

    In one line, and only where somebody looks: on a terminal, or in a notebook.

    Args:
        seconds: that it takes, about, on a machine with nothing else to do.
    """
    if not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield
        return
    told = f"Compiling, once after an installation: about {seconds} s, more if busy"
    with before_compiling(lambda: print(told, file=sys.stderr)):
        yield
