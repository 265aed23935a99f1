"""Standard Student-t laws with whole degrees of freedom: density, distribution function, quantile and CRPS.

All take arrays and broadcast; degrees are whole numbers >= 2, else ValueError. Good for |z| up to 1e150, and in relative
terms in both tails of the distribution function. For a law with location and scale use z = (y - location) / scale: its log
density is that of z less log(scale), its CRPS that of z times scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from fleetgp.arrays import Array

STEPS = 60  # of Newton; five to fifteen are taken

Law = Callable[[ArrayLike, ArrayLike], Array]


def log_density(z: ArrayLike, degrees: ArrayLike) -> Array:
    """Log density at z."""
    return _by_degrees(_log_density, z, degrees)


def cdf(z: ArrayLike, degrees: ArrayLike) -> Array:
    """P(T <= z)."""
    z = np.asarray(z, dtype=np.float64)
    tail = _by_degrees(_tail, np.abs(z), degrees)
    return np.where(z > 0, 1.0 - tail, tail)


def quantile(p: ArrayLike, degrees: ArrayLike) -> Array:
    """The z with P(T <= z) = p; infinite at 0 and 1, NaN outside of them."""
    return _by_degrees(_quantile, p, degrees)


def crps(z: ArrayLike, degrees: ArrayLike) -> Array:
    """Continuous ranked probability score of the law where z is what came: 0 at best, |z| less a constant far out."""
    return _by_degrees(_crps, z, degrees)


def _by_degrees(law: Callable[[Array, int], Array], values: ArrayLike, degrees: ArrayLike) -> Array:
    """law(values, v) for each whole number v among the degrees, put together in the common shape."""
    x, nu = np.broadcast_arrays(np.asarray(values, dtype=np.float64), np.asarray(degrees, dtype=np.float64))
    found = np.unique(nu)
    if not np.all((found >= 2) & (found == np.floor(found)) & np.isfinite(found)):
        raise ValueError(f"degrees of a Student-t law need whole numbers from 2 on, not {found[:5]}")
    if len(found) == 1:
        return law(x, int(found[0]))
    result = np.empty(x.shape)
    for v in found:
        pick = nu == v
        result[pick] = law(x[pick], int(v))
    return result


def _log_height(v: int) -> float:
    """Log density at 0."""
    return math.lgamma((v + 1) / 2) - math.lgamma(v / 2) - 0.5 * math.log(v * math.pi)


def _log_density(z: Array, v: int) -> Array:
    return np.asarray(_log_height(v) - 0.5 * (v + 1) * np.log1p(z * z / v))


def _crps(z: Array, v: int) -> Array:
    """Jordan, Krueger and Lerch 2019, appendix A: z (2 F(z) - 1) + 2 f(z) (v + z^2) / (v - 1) - constant."""
    size = np.abs(z)
    # f(z) (v + z^2) as one power: the product would be 0 times infinity far out
    peak = v * math.exp(_log_height(v)) * np.exp(-0.5 * (v - 1) * np.log1p(z * z / v))
    log_beta = math.lgamma(v - 0.5) - math.lgamma(v) - 2 * (math.lgamma(v / 2) - math.lgamma((v + 1) / 2))
    constant = 2 * math.sqrt(v) / (v - 1) * math.exp(log_beta) / math.sqrt(math.pi)
    return np.asarray(size * (1 - 2 * _tail(size, v)) + 2 * peak / (v - 1) - constant)


def _tail(z: Array, v: int) -> Array:
    """P(T > z) for z >= 0: 1/2 less the finite sum near the middle; further out that would cancel, a fraction does not."""
    square = z * z
    switch = min(v / 2, 9.0)  # tails above 1e-3 lose at most three of sixteen digits
    cos2 = v / (v + square)  # Abramowitz and Stegun's angle is arctan(z / sqrt(v))
    sin = z / np.sqrt(v + square)
    near = 0.5 - _centre(z, cos2, sin, v)
    is_far = square > switch
    return np.asarray(np.where(is_far, _beyond(cos2, sin, v, switch), near) if np.any(is_far) else near)


def _centre(z: Array, cos2: Array, sin: Array, v: int) -> Array:
    """P(0 < T < z) = A / 2, Abramowitz and Stegun 26.7.3 (odd v) and 26.7.4 (even v)."""
    odd = v % 2
    total = np.zeros_like(cos2)
    for k in range(v // 2 - 1, -1, -1):  # Horner: sum of c_k cos^2k, c_k the product of j / (j + 1) of the terms before
        total = 1.0 + total * cos2 * ((2 * k + 1 + odd) / (2 * k + 2 + odd))
    if not odd:
        return np.asarray(0.5 * sin * total)
    return np.asarray((np.arctan(z / math.sqrt(v)) + sin * np.sqrt(cos2) * total) / math.pi)


def _beyond(cos2: Array, sin: Array, v: int, switch: float) -> Array:
    """P(T > z) where z^2 > switch: the sums of 26.7.3-4 go on to A = 1, so the tail is all their terms left out.

    Those are c sin cos^v F(1, (v + 1) / 2; v / 2 + 1; cos^2), the hypergeometric F by Gauss's continued fraction, which is
    taken as far as the slowest z, that at the switch, needs for all its digits.
    """
    odd = v % 2
    c = math.prod((2 * k + 1 + odd) / (2 * k + 2 + odd) for k in range(v // 2)) / (math.pi if odd else 2.0)
    slowest = math.sqrt(switch / (v + switch))
    pairs = math.ceil(20 / math.log((1 + slowest) / (1 - slowest)))
    x = np.minimum(cos2, v / (v + switch))  # what lies nearer is the finite sum's
    low, high = (v + 1) / 2, v / 2 + 1
    fraction = np.ones_like(x)
    for n in range(pairs, 0, -1):
        fraction = 1 - x * ((low + n) * (high + n - 1) / ((high + 2 * n - 1) * (high + 2 * n))) / fraction
        fraction = 1 - x * (n * (high - low + n - 1) / ((high + 2 * n - 2) * (high + 2 * n - 1))) / fraction
    fraction = 1 - x * (low / high) / fraction
    return np.asarray(c * sin * x ** (v / 2) / fraction)


def _quantile(p: Array, v: int) -> Array:
    """Newton from a side where it cannot overshoot, so that it needs no bisection.

    Near the middle P(0 < T < z) is concave in z and 0 is left of the root. In the tail log P(T > z) is concave in log z (the
    density of log T is log-concave) and falls below c v^((v-1)/2) z^-v, whose root is right of the one looked for.
    """
    q = np.minimum(p, 1 - p)
    inner, outer = np.isfinite(q) & (q >= 0.25), (q > 0) & (q < 0.25)
    size = np.where(q == 0, np.inf, np.nan)
    size[inner] = _from_middle(0.5 - q[inner], v)
    size[outer] = _from_far(q[outer], v)
    return np.asarray(np.where(p < 0.5, -size, size))


def _from_middle(share: Array, v: int) -> Array:
    """The z with P(0 < T < z) = share, 0 <= share <= 1/4."""
    z = np.zeros_like(share)
    for _ in range(STEPS):
        step = (share - (0.5 - _tail(z, v))) / np.exp(_log_density(z, v))
        z = np.maximum(z + step, 0.0)
        if np.all(np.abs(step) <= 1e-15 * (1 + z)):
            break
    return z


def _from_far(q: Array, v: int) -> Array:
    """The z with P(T > z) = q, 0 < q < 1/4."""
    log_z = (_log_height(v) + 0.5 * (v - 1) * math.log(v) - np.log(q)) / v
    for _ in range(STEPS):
        z = np.exp(log_z)
        tail = _tail(z, v)
        step = np.log(tail / q) * np.exp(np.log(tail) - log_z - _log_density(z, v))
        log_z = log_z + step
        if np.all(np.abs(step) <= 1e-15):
            break
    return np.asarray(np.exp(log_z))
