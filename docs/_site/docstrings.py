"""What the reference shows of docstrings: examples as code, wherever they stand, and the help of settings."""

from __future__ import annotations

import ast

import griffe


class Docstrings(griffe.Extension):
    """Puts fences around examples; takes the help of `setting(default, help)` for the setting's docstring."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """An object was read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_attribute(self, *, attr: griffe.Attribute, **_: object) -> None:
        """An attribute was read."""
        call = attr.value
        if attr.docstring is None and isinstance(call, griffe.ExprCall) and str(call.function) == "setting":
            default, text = call.arguments[:2]
            attr.docstring = griffe.Docstring(ast.literal_eval(str(text)), parent=attr)
            attr.value = default


def fenced(text: str) -> str:
    r"""A docstring whose examples, up to the next empty line, are blocks of code.

    >>> print(fenced("Adds.\n\n>>> 1 + 1\n2\n\nThat is all."))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    That is all.
    """
    lines: list[str] = []
    inside = False
    for line in [*text.split("\n"), ""]:
        if not inside and line.lstrip().startswith(">>> "):
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append(f"{indent}```")
            inside = False
        lines.append(line)
    return "\n".join(lines[:-1])
