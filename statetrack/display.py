"""How values show themselves in notebooks: they say that they can be shown, the room of figures knows how.

The rooms of these values stand below the figures and do not import them; the room is looked for when a notebook asks.

Main definitions: `Shown`, `Drawn`.
"""

from __future__ import annotations

from typing import Any


def _one_line(self: object, printer: Any, cycle: bool) -> None:
    from statetrack.figures import notebook

    printer.text(notebook.line(self))


class Shown:
    """A value that a notebook shows as HTML, and a console of IPython as one line."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # In the class itself: IPython prefers a class's own __repr__, which dataclasses write, to an inherited method.
        cls._repr_pretty_ = _one_line  # pyright: ignore[reportAttributeAccessIssue]

    def _repr_html_(self) -> str:
        from statetrack.figures import notebook

        return notebook.html(self)


class Drawn(Shown):
    """A value that has a picture as well; None where it is too large for one."""

    def _repr_svg_(self) -> str | None:
        from statetrack.figures import notebook

        return notebook.svg(self)
