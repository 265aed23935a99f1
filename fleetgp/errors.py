"""Every error FleetGP raises on purpose, in one tree.

    FleetError
    ├── NumericalError
    │   ├── NotPositiveDefinite   a matrix that must be a covariance is not one
    │   ├── NotFinite             NaN or infinity where a number was needed
    │   └── BasisRefused          a change of features would lose too much of what was learnt
    ├── WireError
    │   ├── PeerError             what the other side sent is wrong: count it, drop it, go on
    │   └── LocalError            what we were about to send is wrong: our bug, crash loudly
    ├── ConfigError               a setting, a spec or a flag is wrong; says which, where it came from and what is expected
    ├── RecordingError            a recorded file cannot be read as the spec says
    ├── StorageError              the history store refuses (full, locked, not a store of ours)
    └── ServiceError              a program cannot start or go on (port in use, id taken, broker missing)

Each message says what happened, to whom, and what to try.
"""

from __future__ import annotations


class FleetError(Exception):
    """Root of all errors FleetGP raises on purpose."""


class NumericalError(FleetError):
    """A computation cannot give a meaningful number."""


class NotPositiveDefinite(NumericalError):
    """A matrix that must be positive definite is not, whatever jitter was added."""

    def __init__(self, size: int, last_jitter: float) -> None:
        super().__init__(
            f"a {size} x {size} matrix is not positive definite, even with {last_jitter:.1e} on its diagonal"
        )
        self.size = size
        self.last_jitter = last_jitter


class NotFinite(NumericalError):
    """NaN or infinity where a number was needed."""


class BasisRefused(NumericalError):
    """A change of features would lose more of what was learnt than it may."""

    def __init__(self, loss: float) -> None:
        super().__init__(f"the new features cannot express what was learnt: they lose {loss:.2g} of the noise variance")
        self.loss = loss


class WireError(FleetError):
    """A message cannot be turned into a struct or back.

    ``code`` is a short word for counters: ``size``, ``depth``, ``syntax``, ``version``, ``finite``, ``shape``, ...
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class PeerError(WireError):
    """What the other side sent is wrong. It is counted, logged once and dropped; it never ends a loop."""


class LocalError(WireError):
    """What we were about to send is wrong. That is our bug and must be loud."""


class ConfigError(FleetError):
    """A setting, spec or flag is wrong.

    ``source`` tells where the value came from (a file, the environment, a flag), so that it can be found and mended.
    """

    def __init__(self, key: str, problem: str, source: str = "") -> None:
        super().__init__(f"{key}: {problem}" + (f" (from {source})" if source else ""))
        self.key = key
        self.problem = problem
        self.source = source


class RecordingError(FleetError):
    """A recorded file cannot be read as the spec says."""


class StorageError(FleetError):
    """The history store refuses."""


class ServiceError(FleetError):
    """A program cannot start or go on."""
