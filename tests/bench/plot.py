"""Curves of bytes a second against bytes, both logarithmic, as an SVG."""

import math
import pathlib
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 90, 200, 50, 60
COLOURS = ("#1b6ca8", "#c0392b", "#27864a", "#8e5ea2", "#b7791f", "#444444")


def bytes_label(size: int) -> str:
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def rate_label(rate: float) -> str:
    return f"{rate / 1e9:g} GB/s" if rate >= 1e9 else f"{rate / 1e6:g} MB/s"


def draw(path: pathlib.Path, title: str, curves: dict[str, list[tuple[int, float]]]) -> None:
    """`curves`: name -> (size, rate) in the order of their sizes."""
    points = [point for curve in curves.values() for point in curve]
    low_x, high_x = (math.log2(edge(size for size, _ in points)) for edge in (min, max))
    low_y = math.floor(math.log10(min(rate for _, rate in points)))
    high_y = math.ceil(math.log10(max(rate for _, rate in points)))

    def place(size: float, rate: float) -> tuple[float, float]:
        x = (math.log2(size) - low_x) / max(high_x - low_x, 1)
        y = (math.log10(rate) - low_y) / max(high_y - low_y, 1)
        return LEFT + x * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
           f'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="{TOP - 22}" font-size="15">{escape(title)}</text>']
    for shift in range(round(low_x), round(high_x) + 1, 2):
        x, y = place(1 << shift, 10**low_y)
        out.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y:.1f}" stroke="#e0e0e0"/>')
        out.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{bytes_label(1 << shift)}</text>')
    for power in range(low_y, high_y + 1):
        x, y = place(2**low_x, 10**power)
        out.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e0e0e0"/>')
        out.append(f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{rate_label(10**power)}</text>')
    for i, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        line = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in curve)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += ['<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>'.format(*place(*point), colour) for point in curve]
        y = TOP + 12 + 20 * i
        out.append(f'<rect x="{WIDTH - RIGHT + 16}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 32}" y="{y}">{escape(name)}</text>')
    path.write_text("\n".join([*out, "</svg>", ""]))
