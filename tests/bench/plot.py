"""Curves as SVG, on two axes whose scales are what is usual for what they tell."""

import dataclasses
import math
import textwrap
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 90, 200, 50, 60
SMALL, SMALL_LINE = 11, 15  # of captions
COLOURS = ("#1b6ca8", "#c0392b", "#27864a", "#8e5ea2", "#b7791f", "#444444", "#17a2a2", "#d6679b")

Curve = list[tuple[float, float]]


def bytes_label(size: float) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):g} {unit}"
    return f"{size:g} B"


def rate_label(rate: float) -> str:
    return f"{rate / 1e9:g} GB/s" if rate >= 1e9 else f"{rate / 1e6:g} MB/s"


def count_label(count: float) -> str:
    return f"{count:,.0f}" if count >= 1 else f"{count:g}"


def time_label(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:g} {unit}"
    return f"{microseconds:g} µs"


# Kind of axis: the base of its logarithm (none: linear), and how a value on it is written.
KINDS = {
    "bytes": (2, bytes_label),
    "B/s": (10, rate_label),
    "count": (10, count_label),
    "1/s": (10, lambda rate: f"{count_label(rate)} /s"),
    "µs": (10, time_label),
    "%": (None, lambda share: f"{share:g} %"),
}


@dataclasses.dataclass(frozen=True)
class Axis:
    kind: str
    low: float
    high: float

    @classmethod
    def around(cls, kind: str, values: list[float]) -> "Axis":
        """From tick to tick."""
        base, _ = KINDS[kind]
        if base is None:
            return cls(kind, 0, 100)
        low, high = (math.log(edge(values), base) for edge in (min, max))
        # A power that is only nearly one by its logarithm is one.
        low, high = math.floor(low + 1e-9), math.ceil(high - 1e-9)
        return cls(kind, low, max(high, low + 1))

    def place(self, value: float) -> float:
        """From 0 to 1."""
        base, _ = KINDS[self.kind]
        at = value if base is None else math.log(value, base)
        return (at - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        base, label = KINDS[self.kind]
        if base is None:
            values = [20.0 * i for i in range(6)]
        else:
            values = [float(base) ** power for power in range(int(self.low), int(self.high) + 1,
                                                              2 if base == 2 else 1)]
        return [(value, label(value)) for value in values]


@dataclasses.dataclass(frozen=True)
class Caption:
    """Small lines below a drawing of that width, and the height that they take."""
    text: str
    width: int

    @property
    def lines(self) -> list[str]:
        # In a wide font a letter takes 0.6 of its size.
        return textwrap.wrap(self.text, int((self.width - 20) / (0.6 * SMALL)))

    @property
    def height(self) -> int:
        return SMALL_LINE * len(self.lines) + 10 if self.text else 0

    def drawn(self, top: int) -> list[str]:
        return [f'<text x="10" y="{top + SMALL_LINE * (i + 1)}" font-size="{SMALL}" fill="#555">{escape(line)}</text>'
                for i, line in enumerate(self.lines)]


def svg(title: str, x_kind: str, y_kind: str, curves: dict[str, Curve], caption: str = "") -> str:
    """Each curve in the order of its points; none may be empty, nor a value of a logarithmic axis 0."""
    below = Caption(caption, WIDTH)
    height = HEIGHT + below.height
    points = [point for curve in curves.values() for point in curve]
    x_axis = Axis.around(x_kind, [x for x, _ in points])
    y_axis = Axis.around(y_kind, [y for _, y in points])
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + x_axis.place(x) * (right - LEFT), bottom - y_axis.place(y) * (bottom - TOP)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
           f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           f'<text x="{LEFT}" y="{TOP - 22}" font-size="15">{escape(title)}</text>']
    for value, label in x_axis.ticks():
        x = LEFT + x_axis.place(value) * (right - LEFT)
        out.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#e0e0e0"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{escape(label)}</text>')
    for value, label in y_axis.ticks():
        y = bottom - y_axis.place(value) * (bottom - TOP)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#e0e0e0"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>')
    for i, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        line = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in curve)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += ['<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>'.format(*place(*point), colour) for point in curve]
        y = TOP + 12 + 20 * i
        out.append(f'<rect x="{right + 16}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        out.append(f'<text x="{right + 32}" y="{y}">{escape(name)}</text>')
    return "\n".join([*out, *below.drawn(HEIGHT), "</svg>", ""])
