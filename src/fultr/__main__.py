"""`python -m fultr`: the same as the command `fultr`."""

from fultr.cli.main import main

main()
