"""The page of section 4: every run's numbers stand in it, and a bar that was not run is not said to hold."""

from __future__ import annotations

from benchmarks.report import Bar, Report
from benchmarks.section4_page import COLUMNS, page


def test_a_page_tells_means_with_their_intervals_and_the_verdict_of_each_bar() -> None:
    bars = (
        Bar("section4.A.full.rmse", "<=", 0.1),
        Bar("section4.A.full.nll", "<=", -2),
        Bar("section4.B.full.nll", "<=", 0),
    )
    report = Report("section4", bars)
    for model, rmse in (("oracle", 0.081), ("full", 0.092)):
        report.rows.append({"model": f"A {model}", "seeds": 30, "rmse": rmse})
        report.figures |= {f"section4.A.{model}.{column}": 1.0 for column in COLUMNS}
        report.figures |= {f"section4.A.{model}.rmse": rmse, f"section4.A.{model}.rmse_ci95": 0.0034}
    report.rows.append({"model": "D full", "seeds": 2, "rmse": 0.5})
    report.figures |= {f"look.section4.D.full.{column}": 0.5 for column in COLUMNS}
    report.figures["section4.A.full.nll"] = -1.0
    text = page(report)
    rows = [line for line in text.splitlines() if line.startswith(("| full | 30", "| oracle | 30"))]
    assert [row.split(" | ")[2] for row in rows] == ["0.081 ± 0.0034", "0.092 ± 0.0034"]
    assert "## D" in text
    assert "| full | 2 | 0.5 |" in text
    assert "| `section4.A.full.rmse` | 0.092 | <= 0.1 | holds |" in text
    assert "| `section4.A.full.nll` | -1 | <= -2 | does not hold |" in text
    assert "| `section4.B.full.nll` | - | <= 0 | not run |" in text
