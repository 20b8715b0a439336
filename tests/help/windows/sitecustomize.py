"""Loaded by every Python process that has this folder in PYTHONPATH: fultr's own code sees a system like Windows.

Modules that exist on Linux and macOS alone cannot be imported from it, what Windows lacks is missing from `os`,
`signal`, `time`, `socket` and `select`, no file under /proc or /sys can be opened, `os.name` and `sys.platform` say
so. Other packages, and Python itself, are left as they are.
"""

import builtins
import errno
import fcntl
import sys
import types

from missing import MISSING, MODULES

TOLD = {"os": {"name": "nt"}, "sys": {"platform": "win32"}}


def ours(name: object) -> bool:
    """Is this a module of fultr, run as a program or not?"""
    return isinstance(name, str) and (name == "fultr" or name.startswith("fultr."))


class Lacking(types.ModuleType):
    """A module without what Windows lacks."""

    def __init__(self, module: types.ModuleType) -> None:
        super().__init__(module.__name__)
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> object:
        if name in MISSING.get(self.__name__, ()):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on Windows")
        return TOLD.get(self.__name__, {}).get(name, getattr(self._module, name))

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._module, name, value)


lacking = {name: Lacking(__import__(name)) for name in {*MISSING, *TOLD}}
locks = lacking["msvcrt"] = types.ModuleType("msvcrt")  # Windows alone has it
locks.LK_NBLCK = 2
locks.locking = lambda number, mode, size: fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
imported = builtins.__import__


def import_as_on_windows(name, globals=None, locals=None, fromlist=(), level=0):
    """What `import` does; for fultr's modules with what there is on Windows."""
    spec = (globals or {}).get("__spec__")
    if level == 0 and (ours((globals or {}).get("__name__")) or ours(getattr(spec, "name", None))):
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r} on Windows", name=name)
        if name in lacking:
            return lacking[name]
    return imported(name, globals, locals, fromlist, level)


def refuse(event: str, arguments: tuple) -> None:
    """No file of Linux is opened for fultr's own code."""
    if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(("/proc/", "/sys/")):
        frame = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("pathlib", "io", "os"):
            frame = frame.f_back
        if frame is not None and ours(frame.f_globals.get("__name__")):
            raise FileNotFoundError(errno.ENOENT, "there is no such file on Windows", arguments[0])


builtins.__import__ = import_as_on_windows
sys.addaudithook(refuse)
