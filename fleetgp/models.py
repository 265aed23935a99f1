"""Which parts of the model an agent works with: the whole, its ablations and the baselines (models.md section 2).

An agent's own law is v + d + u: v the fleet's weights, d the device's deviation from them, u a private layer. What a model
switches off is here, in one place for every engine: the streaming one (``fleetgp.gp.parts``) and the one with loadings, whose
ranks of what is off are 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

Model = Literal["full", "no-deviation", "no-local", "global-only", "alone", "local-only", "pfedgp"]
MODELS: tuple[Model, ...] = get_args(Model)


class Parts(NamedTuple):
    """shared: the agent takes what the fleet knows and tells it its own; deviation, local: layers of its own; kernel: the
    lengthscale of the local one is the fleet's average.

    Without the fleet, deviation says that the agent has the features of the fleet's kernel for itself, placed by its own frames.
    """

    shared: bool
    deviation: bool
    local: bool
    kernel: bool = False


PARTS: Mapping[Model, Parts] = {
    "full": Parts(True, True, True),
    "no-deviation": Parts(True, False, True),
    "no-local": Parts(True, True, False),
    "global-only": Parts(True, False, False),
    "alone": Parts(False, True, True),
    "local-only": Parts(False, False, True),
    "pfedgp": Parts(False, False, True, kernel=True),
}
# for people: one line each, in help and tables
WORDS: Mapping[Model, str] = {
    "full": "the fleet's law, how this device differs from it, and a private part: the default",
    "no-deviation": "as full, but devices are taken to follow the same law but for their private part",
    "no-local": "as full, without the private part",
    "global-only": "one law for all devices, as if they were one",
    "alone": "as full, from this device's readings only: nothing is taken from the fleet and nothing told",
    "local-only": "as alone, and simpler: a straight line and the private part",
    "pfedgp": "as local-only, but lengthscales of the private part are the fleet's average (pFedGP)",
}


def parts(model: Model) -> Parts:
    return PARTS[model]
