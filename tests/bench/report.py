"""The page that shows what a run has measured: index.html, whole in itself, with drawings of our own."""

import json
import math
import os
import pathlib
import re
import subprocess
import time
from html import escape

import plot
from setups import ROOT

# A bar chart of ratios: names at the left, one row each.
NAMES, BARS, ROW, HEAD = 600, 360, 20, 34
GOOD, BAD, PLAIN = "#1b6ca8", "#c0392b", "#666666"

# Files of --drawings, and the charts that they show.
RATIOS = "beside-peers"
DRAWINGS = {
    "bandwidth-by-size": "pipe: pieces",
    "bandwidth-by-size-verbs": "pipe: pieces, verbs",
    "latencies": "latency of 4 KiB O_DIRECT reads",
    "latencies-verbs": "latency of 4 KiB O_DIRECT reads, verbs",
    "clients": "curve, clients: all at once",
}

STYLE = """
body { font: 14px/1.45 sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; font-size: 13px; }
td, th { padding: 2px 10px; border-bottom: 1px solid #ddd; text-align: right; }
td:first-child, th:first-child, td.word { text-align: left; }
.short { color: #c0392b; } h2 { margin-top: 2em; } svg { max-width: 100%; height: auto; }
"""


def of_file(path: str, key: str) -> str:
    """The value of the first line `key: value`."""
    for line in pathlib.Path(path).read_text().splitlines():
        if line.split(":")[0].strip() == key:
            return line.split(":", 1)[1].strip()
    return "unknown"


def machine(arguments) -> dict[str, str]:
    commit = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%h, %s"], capture_output=True, text=True)
    return {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "processor": f"{os.cpu_count()} x {of_file('/proc/cpuinfo', 'model name')}",
        "memory": plot.bytes_label(round(int(of_file("/proc/meminfo", "MemTotal").split()[0]) / (1 << 20)) << 30),
        "kernel": os.uname().release,
        "rdfs": commit.stdout.strip() or "not from a repository",
        "pairs": f"{arguments.pairs}{', small sizes (--quick)' if arguments.quick else ''}",
        "load before the end": " ".join(pathlib.Path("/proc/loadavg").read_text().split()[:3]),
    }


def merge(paths: list[str]) -> dict:
    """Several runs as one; of a row that two have, the later counts. What they were measured on is told of each."""
    rows: dict[str, dict] = {}
    on: dict[str, list[str]] = {}
    for path in paths:
        measured = json.loads(pathlib.Path(path).read_text())
        rows |= {row["name"]: row for row in measured["rows"]}
        for key, value in measured["on"].items():
            if value not in on.setdefault(key, []):
                on[key].append(value)
    return {"on": {key: "; ".join(values) for key, values in on.items()}, "rows": list(rows.values())}


def verdict(row: dict) -> str:
    """A goal holds when the interval is not below it; a goal inside the interval is told from one below it."""
    if row["goal"] is None:
        return ""
    if not row["holds"]:
        return "falls short"
    return "not below" if row.get("low", row["goal"]) < row["goal"] else "holds"


def group_of(row: dict) -> str:
    """What stands before the first colon, or comma: rows of a kind."""
    return row["name"].split(":")[0].split(",")[0]


def grouped(rows: list[dict]) -> dict[str, list[dict]]:
    groups: dict[str, list[dict]] = {}
    for row in rows:
        groups.setdefault(group_of(row), []).append(row)
    return groups


def bars(rows: list[dict], caption: str = "") -> str:
    """Ratios with their intervals, on one logarithmic scale, and the goal of each."""
    values = [value for row in rows for value in (row["low"], row["high"], row["goal"] or 1, 1)]
    low = math.floor(math.log2(min(values)))
    high = max(math.ceil(math.log2(max(values))), low + 1)
    width, bottom = NAMES + BARS + 40, HEAD + ROW * len(rows) + 10
    below = plot.Caption(caption, width)
    height = bottom + below.height

    def at(ratio: float) -> float:
        return NAMES + (math.log2(ratio) - low) / (high - low) * BARS

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           'viewBox="0 0 {0} {1}" font-family="sans-serif" font-size="12">'.format(width, height),
           '<rect width="100%" height="100%" fill="white"/>']
    for power in range(low, high + 1, max(1, (high - low) // 8)):
        x = at(2.0**power)
        out.append(f'<line x1="{x:.1f}" y1="{HEAD - 8}" x2="{x:.1f}" y2="{bottom}" '
                   f'stroke="{"#888" if power == 0 else "#e0e0e0"}"/>')
        out.append(f'<text x="{x:.1f}" y="{HEAD - 14}" text-anchor="middle">{2.0**power:g}</text>')
    for i, row in enumerate(rows):
        y = HEAD + ROW * i + ROW / 2
        colour = PLAIN if row["goal"] is None else GOOD if row["holds"] else BAD
        name = f'{row["name"]} / {row["peer_name"]}'
        out.append(f'<text x="{NAMES - 12}" y="{y + 4:.1f}" text-anchor="end">{escape(name[:92])}</text>')
        out.append(f'<line x1="{at(row["low"]):.1f}" y1="{y}" x2="{at(row["high"]):.1f}" y2="{y}" stroke="{colour}" '
                   'stroke-width="3"/>')
        out.append(f'<circle cx="{at(row["ratio"]):.1f}" cy="{y}" r="4" fill="{colour}"/>')
        if row["goal"] is not None:
            x = at(row["goal"])
            out.append(f'<line x1="{x:.1f}" y1="{y - 7}" x2="{x:.1f}" y2="{y + 7}" stroke="#222"/>')
    return "\n".join([*out, *below.drawn(bottom), "</svg>"])


def caption(on: dict[str, str], where: str = "") -> str:
    """On what something was measured; `where` if not simply on this machine."""
    told = [f"{key}: {value}" for key, value in on.items()]
    return " · ".join(["Measured " + where if where else "Measured", *told])


def curves(chart: dict, on: dict[str, str]) -> str:
    return plot.svg(chart["title"], chart["x"], chart["y"], chart["curves"], caption(on, chart.get("where", "")))


def table(rows: list[dict]) -> str:
    out = ["<table><tr><th>what</th><th>ours</th><th>peer</th><th></th><th>ratio [95 % interval]</th><th>goal</th>"
           "<th></th><th>caches</th></tr>"]
    for row in rows:
        cells = [row["name"], f'{row["ours"]:.3g} {row.get("unit", "")}']
        if "ratio" in row:
            cells += [f'{row["peer"]:.3g}', row["peer_name"],
                      f'{row["ratio"]:.2f} [{row["low"]:.2f}, {row["high"]:.2f}]']
        else:
            cells += ["", "", ""]
        cells += ["" if row["goal"] is None else f'{row["goal"]:g}', verdict(row),
                  "; ".join(filter(None, (row.get("cached"), row.get("remark"))))]
        falls = ' class="short"' if verdict(row) == "falls short" else ""
        out.append(f"<tr{falls}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return "\n".join([*out, "</table>"])


def page(measured: dict) -> str:
    rows = [row for row in measured["rows"] if "chart" not in row]
    charts = [row["chart"] for row in measured["rows"] if "chart" in row]
    out = ['<!doctype html><html lang="en"><head><meta charset="utf-8"><title>rdfs beside its peers</title>',
           f"<style>{STYLE}</style></head><body><h1>rdfs beside its peers</h1>",
           "<p>A dot is the median of the ratios of alternating pairs, ours to the peer's, in one run; its line is the "
           "95 % interval, the upright stroke the goal. More is better.</p><table>"]
    out += [f'<tr><td>{escape(key)}</td><td class="word">{escape(value)}</td></tr>'
            for key, value in measured["on"].items()]
    out.append("</table>")
    for group, members in grouped(rows).items():
        out.append(f"<h2>{escape(group)}</h2>")
        ratios = [row for row in members if "ratio" in row]
        if ratios:
            out.append(bars(ratios))
        out.append(table(members))
    if charts:
        out.append("<h2>Curves</h2>")
    out += [curves(chart, measured["on"]) for chart in charts]
    return "\n".join([*out, "</body></html>", ""])


def write(directory: pathlib.Path, measured: dict) -> pathlib.Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "index.html"
    path.write_text(page(measured), encoding="utf-8")
    return path


def quote(path: pathlib.Path, measured: dict) -> list[str]:
    """Writes ratios into a text, behind the comments there that name their rows, and on what they were measured. Returns
    the names there of what was not measured, whose figures stay as they were."""
    ratios = {row["name"]: f'{row["ratio"]:.2f} [{row["low"]:.2f}, {row["high"]:.2f}]' for row in measured["rows"]
              if "ratio" in row}
    text = path.read_text(encoding="utf-8")
    places = re.compile(r"<!-- (knobs: .*?) -->(?:[\d.]+ \[[\d.]+, [\d.]+\]|\(not yet measured\))")
    missing = [name for name in places.findall(text) if name not in ratios]
    text = places.sub(lambda at: f"<!-- {at[1]} -->{ratios[at[1]]}" if at[1] in ratios else at[0], text)
    measured_on = escape(caption(measured["on"]), quote=False)
    text = re.sub(r"(<!-- measured on -->).*", lambda at: at[1] + measured_on, text)
    path.write_text(text, encoding="utf-8")
    return missing


def draw(directory: pathlib.Path, measured: dict) -> list[pathlib.Path]:
    """Pictures for a text, each with what it was measured on: the ratios, and those of DRAWINGS that were measured."""
    directory.mkdir(parents=True, exist_ok=True)
    ratios = [row for row in measured["rows"] if "ratio" in row]
    charts = {row["name"]: row["chart"] for row in measured["rows"] if "chart" in row}
    pictures = {RATIOS: bars(ratios, caption(measured["on"])) + "\n"} if ratios else {}
    pictures |= {file: curves(charts[name], measured["on"]) for file, name in DRAWINGS.items() if name in charts}
    for file, picture in pictures.items():
        (directory / f"{file}.svg").write_text(picture, encoding="utf-8")
    return [directory / f"{file}.svg" for file in pictures]
