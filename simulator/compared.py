"""Several models on the same recordings: which are wanted, and a table with a row for each, at most a hundred columns wide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetgp.errors import ConfigError
from fleetgp.models import MODELS, WORDS, Model
from fleetgp.runtime.spec import closest

NAME = 14
OLD_WORDS: Mapping[str, Model] = {"fleet": "full", "alone": "alone"}

HOW_TO_READ = (
    "RMSE      typical error in standard deviations of each channel: lower is better",
    "NLL       how surprised a forecast was by what came, bold mistakes cost most: lower is better",
    "CRPS      distance of the whole forecast, spread included, from what came: lower is better",
    "in 90 %   readings of 100 in the 90 % band: nearest to 90 is best",
    "kB        what all devices and the coordinator told each other in one round",
)


def wanted(words: Sequence[str], mode: str | None) -> tuple[Model, ...]:
    """The models named by --model, each once, or by --mode, its older form. Raises ConfigError."""
    if words and mode:
        raise ConfigError("--mode", f"is the older form of --model: leave it out (--model {' '.join(words)})")
    if not words:
        return (OLD_WORDS[mode or "fleet"],)
    unknown = [word for word in words if word not in MODELS]
    for word in unknown:
        near = closest(word, MODELS)
        advice = f'did you mean "{near}"?' if near else f"there are {', '.join(MODELS)}; name the files before --model"
        raise ConfigError("--model", f"{word!r} is no model; {advice}")
    return tuple(model for model in MODELS if model in words)


def tables(reports: Mapping[Model, Mapping[str, Any]]) -> list[str]:
    """Lines: a row for each model, its words, what the first is worth beside each of the others."""
    head = f"{'model':<{NAME}}{'n':>9}{'RMSE':>9}{'NLL':>9}{'CRPS':>9}{'in 90 %':>9}{'events':>8}{'seconds':>9}{'rounds':>8}{'kB':>9}"
    rows = [_row(model, report) for model, report in reports.items()]
    persistence = next(iter(reports.values()))["overall"]["rmse_persistence"]
    rows.append(f"{'as it was':<{NAME}}{'':>9}{_text(persistence, '.4f'):>9}")
    words = [f"{model:<{NAME}}{WORDS[model]}" for model in reports]
    return [head, *rows, "", *words, "", *HOW_TO_READ, "", *verdicts(reports)]


def verdicts(reports: Mapping[Model, Mapping[str, Any]]) -> list[str]:
    """How much more surprised each model was than the first, and for how many devices."""
    first, *others = reports
    lines = []
    for model in others:
        mine, its = reports[first]["overall"]["nll"], reports[model]["overall"]["nll"]
        if mine is None or its is None:
            continue
        pairs = [(_nll(reports[first], name), _nll(reports[model], name)) for name in reports[first]["agents"]]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        worse = sum(b > a for a, b in known)
        word = f"{abs(its - mine):.4f} nats a reading {'worse' if its >= mine else 'BETTER'} than {first}"
        lines.append(f"{model:<{NAME}}{word}; worse for {worse} of {len(known)} devices")
    return lines


def _nll(report: Mapping[str, Any], agent: str) -> float | None:
    found: float | None = report["agents"].get(agent, {}).get("nll")
    return found


def _row(model: Model, report: Mapping[str, Any]) -> str:
    found, size = report["overall"], report["bytes_per_round"]
    scores = "".join(f"{_text(found[key], '.4f'):>9}" for key in ("rmse", "nll", "crps"))
    inside = _text(found["coverage90"], ".1%").removesuffix("%")
    kilobytes = "-" if size is None else f"{size / 1000:,.1f}"
    return (
        f"{model:<{NAME}}{found['n']:>9}{scores}{inside:>9}{report['events']:>8}{report['seconds']:>9.1f}"
        f"{report['rounds_closed']:>8}{kilobytes:>9}"
    )


def _text(value: float | None, form: str) -> str:
    if value is None:
        return "-"
    return format(value, form if abs(value) < 1000 else ".3g")
