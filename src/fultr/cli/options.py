"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from fultr.core.checks import SettingError
from fultr.core.settings import REQUIRED, Leaf, leaves

_Command = TypeVar("_Command", bound=Callable[..., Any])

DATA_HELP = "synthetic, synthetic-yahoo, synthetic-istella, or a folder or file in LETOR format."
SEED_HELP = "Seed of the users, their clicks and the logging policy."
PATH = click.Path(path_type=Path)


def json_option(command: _Command) -> _Command:
    """JSON for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")(
        command
    )


def unordered_option(command: _Command) -> _Command:
    """Whether the lines of a click log have no order."""
    told = "The lines are not in the order of time: leave out the check that needs it."
    return click.option("--unordered", is_flag=True, help=told)(command)


def features_option(command: _Command) -> _Command:
    """Which columns of a click log hold the features."""

    def names(_: click.Context, __: click.Parameter, text: str | None) -> list[str] | None:
        return None if text is None else [name.strip() for name in text.split(",")]

    return click.option(
        "--features",
        metavar="NAME,NAME,...",
        callback=names,
        help="Columns that hold the features, where a row is a document.  [default: f1, f2, ...]",
    )(command)


def threads_option(command: _Command) -> _Command:
    """How many threads."""
    return click.option(
        "--threads",
        type=click.IntRange(min=1),
        help="Number of threads; it does not affect the results.  [default: all cores]",
    )(command)


def workers_option(command: _Command) -> _Command:
    """How many processes."""
    return click.option(
        "--workers",
        "--threads",
        "workers",
        type=click.IntRange(min=1),
        help="Number of processes; it does not affect the results.  [default: one per core]",
    )(command)


class SettingType(click.ParamType[Any]):
    """What a setting may be: refused in the same words as in files."""

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = leaf
        self.name = {int: "integer", float: "number"}.get(leaf.kind, "text")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value as files have it, if it is allowed."""
        if not isinstance(value, str):
            return value
        try:
            return self._leaf.write(self._leaf.parse(value))
        except SettingError as error:
            said = str(error).removeprefix(f"{self._leaf.name}: ")
            raise SettingError(option_name(self._leaf.name), said) from None

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """The choices, if there are no others."""
        return f"[{'|'.join(self._choices)}]" if self._choices else None

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The choices that begin so."""
        return [CompletionItem(choice) for choice in self._choices if choice.startswith(incomplete)]

    @property
    def _choices(self) -> Collection[str]:
        return () if self._leaf.reads else self._leaf.choices


def option_name(setting: str) -> str:
    """How a setting is called on the command line.

    >>> option_name("client_rate")
    '--client-rate'
    """
    return f"--{setting.replace('_', '-')}"


def setting_names(tree: type, *first: str, without: Collection[str] = ()) -> list[str]:
    """The settings of a tree, some first and without some."""
    return [*first, *(name for name in leaves(tree) if name not in (*first, *without))]


def settings_options(
    tree: type, names: Collection[str], defaults: Mapping[str, object] | None = None
) -> Callable[[_Command], _Command]:
    """Options for settings of a tree; a command gets None for one that is not given.

    Args:
        tree: the class.
        names: of the settings.
        defaults: that differ from the tree's; a command gets these.
    """
    usual = defaults or {}

    def decorate(command: _Command) -> _Command:
        for name in reversed(list(names)):
            leaf = leaves(tree)[name]
            command = _setting_option(leaf, usual.get(name))(command)
        return command

    return decorate


def given_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were given, of the values of their options."""
    return {name: value for name, value in values.items() if value is not None}


def _setting_option(leaf: Leaf, default: Any) -> Callable[[_Command], _Command]:
    shown = leaf.default if default is None else default
    text = f"{leaf.help.removesuffix('.')}; 0: {leaf.zero}." if leaf.zero else leaf.help
    if leaf.kind is bool:
        return click.option(option_name(leaf.name), is_flag=True, default=None, help=text)
    if shown is not REQUIRED:
        value = leaf.write(shown)
        text += f"  [default: {f'{value:g}' if isinstance(value, float) else value}]"
    return click.option(option_name(leaf.name), type=SettingType(leaf), default=default, help=text)


def reading_options(command: _Command) -> _Command:
    """How LETOR files are read."""
    for option in (
        sentinel_option,
        click.option("--merge", is_flag=True, help="Accept files in which the lines of a query are not all together."),
        click.option("--fold", default=1, show_default=True, help="Fold to read, of a data set that has folds."),
    ):
        command = option(command)
    return command


def sentinel_option(command: _Command) -> _Command:
    """What stands for a missing value."""
    return click.option(
        "--sentinel", multiple=True, help="Number that stands for a missing value, such as 1.79769313486232e+308."
    )(command)


def numbers(kind: type) -> Callable[[click.Context, click.Parameter, str], tuple[Any, ...]]:
    """Numbers with commas between them."""

    def convert(context: click.Context, parameter: click.Parameter, text: str) -> tuple[Any, ...]:
        try:
            return tuple(kind(part) for part in text.split(","))
        except ValueError:
            raise click.BadParameter(f"expected numbers with commas between them, found {text!r}") from None

    return convert
