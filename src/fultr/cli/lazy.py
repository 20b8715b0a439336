"""Groups of commands: one that imports a command only when it is called or explained, and one in order of use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import ClassVar, NamedTuple

import click
from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    """A command that has not been imported.

    Attributes:
        name: of the command, and of the function in its module.
        module: where the command is.
        summary: the line that the group's help shows.
    """

    name: str
    module: str
    summary: str


class OrderedGroup(click.Group):
    """A group whose help lists the commands in the order of their definition, which is that of their use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands' names."""
        return list(self.commands)


class LazyGroup(click.Group):
    """A group whose own help and completion need none of its commands' modules.

    Attributes:
        sections: the commands under the headings of the group's help, in this order.
    """

    sections: ClassVar[Mapping[str, Sequence[Entry]]]

    def entries(self) -> dict[str, Entry]:
        """All commands by name, in the order of the help."""
        return {entry.name: entry for entries in self.sections.values() for entry in entries}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands' names, in the order of the help."""
        return list(self.entries())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command, imported now; None if there is none of that name."""
        entry = self.entries().get(cmd_name)
        return None if entry is None else getattr(import_module(entry.module), cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; an unknown one is compared with the names that there are."""
        self.commands = {name: click.Command(name) for name in self.entries()}  # what click suggests from
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one line per command."""
        widest = max(map(len, self.entries()))
        for heading, entries in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(entry.name.ljust(widest), entry.summary) for entry in entries])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands, and the group's options."""
        found = [entry for entry in self.entries().values() if entry.name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(entry.name, help=entry.summary) for entry in found] + options
