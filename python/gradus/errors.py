"""What the library raises."""

from __future__ import annotations


class Error(Exception):
    """A program, an input or an argument is wrong; the message says what to do.

    `str(error)` is the whole text, as a compiler prints it. `message` is what is wrong, without the
    place. Where a place in a program is known, `file`, `line` and `column` (from 1) say where, and
    `excerpt` is that line with a caret under it; else they are None.
    """

    def __init__(
        self,
        text: str,
        message: str | None = None,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        excerpt: str | None = None,
    ) -> None:
        super().__init__(text)
        self.message = text if message is None else message
        self.file = file
        self.line = line
        self.column = column
        self.excerpt = excerpt


class Unsupported(Error):
    """A model asks for what the importer has no meaning for; `reason` names it."""

    reason: str = ""


class ResourceError(Exception):
    """The machine lacks memory, disk or the like."""


class InternalError(Exception):
    """An invariant of Gradus does not hold: a fault of its own."""
