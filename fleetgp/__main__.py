"""``python -m fleetgp`` is ``fleetgp``."""

from __future__ import annotations

import sys

from fleetgp.cli import main

sys.exit(main())
