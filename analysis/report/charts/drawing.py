"""A drawing: SVG elements by name, colours by CSS class, so that one drawing serves light, dark
and print."""

from __future__ import annotations

from html import escape

from markupsafe import Markup


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


class Drawing:
    """An SVG of fixed coordinates that scales to its container's width.

    `label` is read to those who cannot see it. Any element may have a `tip`, which the page shows
    on hover, lines separated by a line feed.
    """

    def __init__(self, width: float, height: float, label: str) -> None:
        self.width, self.height, self.label = width, height, label
        self._parts: list[str] = []
        self.marks = 0

    def rect(
        self, x: float, y: float, width: float, height: float, css: str, tip: str = ""
    ) -> None:
        self._element("rect", css, tip, x=x, y=y, width=max(width, 0), height=max(height, 0))

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str, tip: str = "") -> None:
        self._element("line", css, tip, x1=x1, y1=y1, x2=x2, y2=y2)

    def circle(self, x: float, y: float, radius: float, css: str, tip: str = "") -> None:
        self._element("circle", css, tip, cx=x, cy=y, r=radius)

    def path(self, commands: str, css: str, tip: str = "") -> None:
        self._element("path", css, tip, d=commands)

    def polyline(self, points: list[tuple[float, float]], css: str, tip: str = "") -> None:
        self.path("M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in points), css, tip)

    def text(self, x: float, y: float, content: str, css: str = "", turn: float = 0) -> None:
        """`turn` in degrees about (x, y)."""
        attributes: dict[str, float | str] = {"x": x, "y": y}
        if turn:
            attributes["transform"] = f"rotate({_number(turn)} {_number(x)} {_number(y)})"
        self._open("text", css, "", attributes)
        self._parts.append(f">{escape(content, quote=False)}</text>")

    def begin(self, css: str = "", tip: str = "") -> None:
        """Open a group, to be closed by `end`."""
        self._open("g", css, tip, {})
        self._parts.append(">")

    def end(self) -> None:
        self._parts.append("</g>")

    def render(self) -> Markup:
        # All parts were escaped when they were added. A mark beside its own words, such as a
        # legend's, says nothing more.
        said = (
            f'role="img" aria-label="{escape(self.label)}"' if self.label else 'aria-hidden="true"'
        )
        return Markup(
            f'<svg viewBox="0 0 {_number(self.width)} {_number(self.height)}" '
            f'width="{_number(self.width)}" {said}>' + "".join(self._parts) + "</svg>"
        )

    def _element(self, name: str, css: str, tip: str, **attributes: float | str) -> None:
        self.marks += 1
        self._open(name, css, tip, attributes)
        self._parts.append("/>")

    def _open(self, name: str, css: str, tip: str, attributes: dict[str, float | str]) -> None:
        values = "".join(
            f' {key}="{escape(value) if isinstance(value, str) else _number(value)}"'
            for key, value in attributes.items()
        )
        if css:
            values += f' class="{css}"'
        if tip:
            values += f' data-tip="{escape(tip)}"'
        self._parts.append(f"<{name}{values}")
