"""Sensor payloads to readings: one file a format. What cannot be read is counted by reason, never fatal."""

from fleetgp.payloads.content import MAX_PAYLOAD, Content
from fleetgp.payloads.sniff import read

__all__ = ["MAX_PAYLOAD", "Content", "read"]
