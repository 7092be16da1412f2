#!/usr/bin/env python3
"""Usage: report_test.py

The page and the drawings of fixture/run.json, a short run that was kept: each is XML as far as it is a drawing, stays
within its edges, and has every row, peer, curve and point, and what it was measured on. docs/tuning.md quotes every
row of knobs.py, and the drawings that README.md shows are there and of those that --readme makes.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from html import escape

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
import knobs
import report

FIXTURE = HERE / "fixture/run.json"
TUNING = ROOT / "docs/tuning.md"
SVG = "{http://www.w3.org/2000/svg}"


class Drawing:
    def __init__(self, text: str):
        self.root = ElementTree.fromstring(text)
        self.texts = ["".join(element.itertext()) for element in self.root.iter(f"{SVG}text")]
        # A caption is broken into lines anywhere between words.
        self.prose = " ".join(self.texts)

    def count(self, tag: str) -> int:
        return len(list(self.root.iter(SVG + tag)))

    def outside(self) -> list[str]:
        """What is drawn beyond the edges; of a text, where it begins and how far its caption may reach."""
        width, height = float(self.root.get("width")), float(self.root.get("height"))
        found = []
        for element in self.root.iter():
            at = {key: float(element.get(key)) for key in ("x", "x1", "x2", "cx", "y", "y1", "y2", "cy")
                  if element.get(key)}
            points = [float(number) for number in re.findall(r"[-\d.]+", element.get("points", ""))]
            at |= {f"x of {i}" if i % 2 == 0 else f"y of {i}": number for i, number in enumerate(points)}
            found += [f"{element.tag}: {key}={value}" for key, value in at.items()
                      if not 0 <= value <= (width if "x" in key else height)]
            size = element.get("font-size")
            if element.tag == f"{SVG}text" and size:
                end = at["x"] + 0.6 * float(size) * len(element.text)
                found += [f"text to {end:.0f}: {element.text}"] if end > width else []
        return found


def of_page(html: str) -> list[Drawing]:
    return [Drawing(text) for text in re.findall(r"<svg.*?</svg>", html, re.S)]


def check_measured_on(drawing: Drawing, on: dict[str, str], where: str = "") -> None:
    for said in (where, *on.values()):
        assert said in drawing.prose, (said, drawing.prose)


def check_ratios(drawing: Drawing, rows: list[dict]) -> None:
    assert drawing.outside() == []
    for row in rows:
        assert f'{row["name"]} / {row["peer_name"]}' in drawing.texts, (row["name"], drawing.texts)
    assert drawing.count("circle") == len(rows), rows


def check_curves(drawing: Drawing, chart: dict, on: dict[str, str]) -> None:
    assert drawing.outside() == [], chart["title"]
    assert chart["title"] in drawing.texts
    assert set(chart["curves"]) <= set(drawing.texts), (list(chart["curves"]), drawing.texts)
    lines = [element.get("points").split() for element in drawing.root.iter(f"{SVG}polyline")]
    assert [len(line) for line in lines] == [len(curve) for curve in chart["curves"].values()]
    check_measured_on(drawing, on, chart["where"])


def check_page(html: str, measured: dict) -> None:
    rows = [row for row in measured["rows"] if "chart" not in row]
    charts = [row["chart"] for row in measured["rows"] if "chart" in row]
    groups = [[row for row in group if "ratio" in row] for group in report.grouped(rows).values()]
    groups = [group for group in groups if group]
    drawings = of_page(html)
    assert len(drawings) == len(groups) + len(charts)
    for drawing, group in zip(drawings, groups):
        check_ratios(drawing, group)
    for drawing, chart in zip(drawings[len(groups):], charts):
        check_curves(drawing, chart, measured["on"])
    tables = [ElementTree.fromstring(table) for table in re.findall(r"<table>.*?</table>", html, re.S)]
    cells = ["".join(cell.itertext()) for table in tables for cell in table.iter("td")]
    for said in (*measured["on"].values(), *[row["name"] for row in rows]):
        assert said in cells, said
    short = [row.find("td").text for table in tables for row in table.iter("tr") if row.get("class") == "short"]
    assert short == [row["name"] for row in rows if not row["holds"]] and short, short


def check_drawings(directory: pathlib.Path, measured: dict) -> None:
    drawings = {path.stem: Drawing(path.read_text(encoding="utf-8")) for path in directory.iterdir()}
    assert set(drawings) == {report.RATIOS, *report.DRAWINGS}, list(drawings)
    charts = {row["name"]: row["chart"] for row in measured["rows"] if "chart" in row}
    check_ratios(drawings[report.RATIOS], [row for row in measured["rows"] if "ratio" in row])
    check_measured_on(drawings[report.RATIOS], measured["on"])
    for file, name in report.DRAWINGS.items():
        check_curves(drawings[file], charts[name], measured["on"])


def check_readme() -> None:
    shown = re.findall(r"\(docs/figures/(.*?)\.svg\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert sorted(shown) == sorted({report.RATIOS, *report.DRAWINGS}), shown
    for name in shown:
        drawing = Drawing((ROOT / "docs/figures" / f"{name}.svg").read_text(encoding="utf-8"))
        assert "Measured" in drawing.prose, name


def quotes(text: str) -> dict[str, str]:
    """Row to what stands behind its name."""
    return dict(re.findall(r"<!-- (knobs: .*?) -->([\d.]+ \[.*?\]|\(not yet measured\))", text))


def check_quotes(tuning: pathlib.Path, measured: dict) -> None:
    """What was measured is written there, and nothing else is changed; every row of knobs.py has its place there."""
    before = tuning.read_text(encoding="utf-8")
    out = run("--from", FIXTURE, "--tuning", tuning)
    text = tuning.read_text(encoding="utf-8")
    new = {row["name"]: f'{row["ratio"]:.2f} [{row["low"]:.2f}, {row["high"]:.2f}]' for row in measured["rows"]
           if row["name"].startswith("knobs: ")}
    assert new and quotes(text) == quotes(before) | new
    assert before.count("<!-- knobs: ") == len(quotes(before)) == len(new) + out.count("not measured, and left")
    assert [said for said in measured["on"].values() if escape(said, quote=False) not in text] == []
    assert sorted(quotes(before)) == sorted(knobs.names())


def run(*options) -> str:
    return subprocess.run([HERE / "run", *options], check=True, capture_output=True, text=True).stdout


def main() -> None:
    measured = json.loads(FIXTURE.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as work:
        pages, pictures = pathlib.Path(work, "page"), pathlib.Path(work, "pictures")
        out = run("--from", FIXTURE, "--report", pages, "--drawings", pictures)
        for row in measured["rows"]:
            assert ("chart" in row) or row["name"] in out, row["name"]
        check_page((pages / "index.html").read_text(encoding="utf-8"), measured)
        check_drawings(pictures, measured)
        check_readme()
        check_quotes(pathlib.Path(shutil.copy(TUNING, work)), measured)
        # The same run twice is the same run.
        run("--from", FIXTURE, "--from", FIXTURE, "--report", pages)
        check_page((pages / "index.html").read_text(encoding="utf-8"), measured)


if __name__ == "__main__":
    main()
