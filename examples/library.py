"""The hierarchical model as a library, no broker needed: five machines learn together, and a sixth joins with eight readings.

python examples/library.py        (some seconds)
"""

from __future__ import annotations

import numpy as np

from fleetgp.gp.estimator import PFedHGP
from fleetgp.gp.hierarchy import Ranks

rng = np.random.default_rng(1)


def machine(frames: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position in a cycle [n, 1], readings of two channels [n, 2], and what they would be without noise [n, 2]."""
    x = np.sort(rng.uniform(0, 10, frames))[:, None]
    common = np.column_stack((np.sin(x), np.cos(0.7 * x)))
    own = rng.normal(0, 0.3) * np.sin(0.5 * x + rng.uniform(0, 6)) + rng.normal(0, 0.2)
    true = common + own * np.array([1.0, 0.5])
    return x, true + 0.05 * rng.standard_normal(true.shape), true


def error(model: PFedHGP, name: str, x: np.ndarray, true: np.ndarray) -> float:
    return float(np.sqrt(np.mean((model.predict(name, x) - true) ** 2)))


fleet = {f"machine-{i}": machine(40)[:2] for i in range(1, 6)}
model = PFedHGP(inducing=15, local_inducing=15).fit(fleet)
print(
    f"evidence: {model.scores[0]:.0f} nats in the first round, {max(model.scores):.0f} in the best of {len(model.scores)}"
)

# The newcomer: 48 frames, of which it has seen eight.
x, y, true = machine(48)
seen = np.arange(0, 48, 6)
model.add_client("machine-6", x[seen], y[seen])
alone = PFedHGP(Ranks(0, 2, 2), inducing=15, local_inducing=15).fit({"machine-6": (x[seen], y[seen])})
print(
    f"machine-6 with 8 readings: off by {error(model, 'machine-6', x, true):.2f}, without the fleet {error(alone, 'machine-6', x, true):.2f}"
)

mean, cov = model.predict("machine-6", x, return_cov=True)
inside = np.abs(y - mean) < 1.645 * np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
print(f"its 90 % intervals hold {100 * inside.mean():.0f} % of 48 frames")

means, _ = model.layers("machine-6", x)
for name, part in zip(("what all machines do", "how it deviates", "what is its own alone"), means, strict=True):
    print(f"{name:<22} {np.std(part):.2f}")

model.partial_fit({"machine-6": (x, y)})
print(f"machine-6 with 48 more: off by {error(model, 'machine-6', x, true):.2f}")
