"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from fultr.clicks import ClickModel
from fultr.policy import PolicySettings

_Command = TypeVar("_Command", bound=Callable[..., Any])

DATA_HELP = "synthetic, synthetic-yahoo, synthetic-istella, or a folder or file in LETOR format."


def json_option(command: _Command) -> _Command:
    """JSON for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")(
        command
    )


def threads_option(command: _Command) -> _Command:
    """How many threads."""
    return click.option(
        "--threads",
        type=click.IntRange(min=1),
        help="Threads to use.  [default: all cores]  Results do not depend on it.",
    )(command)


def workers_option(command: _Command) -> _Command:
    """How many processes."""
    return click.option(
        "--workers",
        "--threads",
        "workers",
        type=click.IntRange(min=1),
        help="Processes to use.  [default: one a core]  Results do not depend on it.",
    )(command)


def policy_options(command: _Command) -> _Command:
    """How strong the logging policy is."""
    usual = PolicySettings()
    for name, default, text in (
        ("--policy-rate", usual.learning_rate, "Its learning rate."),
        ("--policy-epochs", usual.epochs, "Passes of its training over them."),
        ("--policy-fraction", usual.fraction, "Share of the training queries that the logging policy sees."),
    ):
        command = click.option(name, default=default, show_default=True, help=text)(command)
    return command


def gamma_sd_option(command: _Command) -> _Command:
    """How different users are."""
    return click.option(
        "--gamma-sd", default=ClickModel.gamma_sd, show_default="sqrt(0.1)", help="Spread of users' bias severity."
    )(command)


def reading_options(command: _Command) -> _Command:
    """How LETOR files are read."""
    for option in (
        click.option("--sentinel", multiple=True, help="A value that means `no value`, such as 1.79769313486232e+308."),
        click.option("--merge", is_flag=True, help="Allow that a query comes back later in a file."),
        click.option("--fold", default=1, show_default=True, help="Which fold, where a data set has folds."),
    ):
        command = option(command)
    return command


def numbers(kind: type) -> Callable[[click.Context, click.Parameter, str], tuple[Any, ...]]:
    """Numbers with commas between them."""

    def convert(context: click.Context, parameter: click.Parameter, text: str) -> tuple[Any, ...]:
        try:
            return tuple(kind(part) for part in text.split(","))
        except ValueError:
            raise click.BadParameter(f"expected numbers with commas between them, found {text!r}") from None

    return convert
