"""docs/section4.md: what the runs of section 4 say, as tables for people."""

from __future__ import annotations

from typing import Any

from benchmarks.report import Report

COLUMNS = ("rmse", "nll", "crps", "coverage90", "coverage95", "covariance", "cpu_seconds", "bytes")
WORDS = """\
# Section 4 of the pFedHGP paper, with all its models

Six devices, four channels, two latent functions a layer; every seed draws new functions, loadings, inputs and noise. Made by
`python -m benchmarks.section4 --scenario A B C D --seeds 30 --markdown docs/section4.md` and, for the settings named with a number
of inputs, by `--inputs 15 8`.

**A** is the model itself. **B**: devices deviate by a periodic function, which no model here has. **C**: shared and private
functions also multiply. **D**: what a device does otherwise is in part what all do. **A15**: 15 inputs a device instead of 60.
**unbalanced**: one device has 8 inputs, the others 60. **gpytorch** (`--peers gpytorch`): the first device of A by itself, ours
against two peers of 25 learnable inducing inputs a latent, trained by Adam until the ELBO stands still or for 2,000 steps.

| model | what it is |
|---|---|
| full | pFedHGP: shared, deviation and private layer |
| no-deviation, no-local, global-only | without the layers they name; global-only is one model for all |
| local-only | every device by itself, its private layer alone |
| alone | every device by itself, with deviation and private layer |
| pfedgp | a personal multi-output block, its kernel's lengthscale averaged over devices every round |
| algorithm1 | the paper's own inference: mean-field, 20 rounds of 80 local Adam steps |
| ours, fleet | of gpytorch's setting: `alone` on that one device; `full`, which has the five others' data too, for comparison |
| svgp, lmc | gpytorch's sparse variational processes: a channel each, and four latents mixed linearly |
| oracle | the exact process with its true hyperparameters; none can do better in A, B and D on average |

RMSE and CRPS in the unit of the readings (noise has a standard deviation of 0.05), NLL in nats a value; then the shares of test
readings inside the 90 and 95 % intervals, the relative error of the covariance across channels, processor seconds of one thread for
all six devices, and bytes that a device sends in a round. Means over seeds, ± the half width of their 95 % interval.
"""


def page(report: Report) -> str:
    """The text of the page."""
    told = report.as_dict()
    python, cores = told["machine"]["python"], told["machine"]["cores"]
    lines = [WORDS, f"{told['date']}, commit {told['commit']}, {cores} cores, Python {python}."]
    figures = {name.removeprefix("look."): value for name, value in report.figures.items()}
    for setting in dict.fromkeys(row["model"].split()[0] for row in told["rows"]):
        lines += ["", f"## {setting}", "", "| model | seeds | " + " | ".join(COLUMNS) + " |"]
        lines.append("|" + "---|" * (len(COLUMNS) + 2))
        rows = [row for row in told["rows"] if row["model"].split()[0] == setting]
        for row in sorted(rows, key=lambda row: float(row["rmse"])):
            model = row["model"].split()[1]
            values = (_cell(figures, f"section4.{setting}.{model}.{column}") for column in COLUMNS)
            lines.append(f"| {model} | {row['seeds']} | " + " | ".join(values) + " |")
    lines += ["", "## Bars", "", "| figure | value | bound | |", "|---|---|---|---|"]
    lines += [f"| `{bar['name']}` | {_number(bar['value'])} | {bar['op']} {bar['bound']:g} | {_verdict(bar)} |"
              for bar in told["bars"]]  # fmt: skip
    return "\n".join([*lines, ""])


def _cell(figures: dict[str, float], name: str) -> str:
    half = figures.get(f"{name}_ci95")
    if name.endswith(".bytes"):
        return f"{figures[name]:.0f}"
    return _number(figures.get(name)) + (f" ± {half:.2g}" if half is not None else "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _verdict(bar: dict[str, Any]) -> str:
    return {True: "holds", False: "does not hold", None: "not run"}[bar["holds"]]
