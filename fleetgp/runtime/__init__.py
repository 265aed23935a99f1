"""Rooms with IO that every program shares: clock, settings, MQTT session, files, logs, metrics."""
