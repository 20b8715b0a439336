"""The command `fultr completion`."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL.

    With it, the tab key completes commands and options of `fultr`.

    \b
    Examples
      eval "$(fultr completion bash)"        in ~/.bashrc
      eval "$(fultr completion zsh)"         in ~/.zshrc
      fultr completion fish | source         in config.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "fultr", "_FULTR_COMPLETE").source())
