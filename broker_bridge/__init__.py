"""The bridge: keeps the history of a fleet, and runs a broker for fleets that have none."""
