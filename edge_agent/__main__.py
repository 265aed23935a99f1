"""``python -m edge_agent``: the agent without the dispatcher."""

import sys

from edge_agent.cli import agent
from fleetgp.errors import FleetError

if __name__ == "__main__":
    try:
        sys.exit(agent(sys.argv[1:]))
    except FleetError as error:
        print(f"fleetgp agent: {error}", file=sys.stderr)
        sys.exit(2)  # as the dispatcher does
