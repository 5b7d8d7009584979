"""Postgres and an MQTT broker as child processes, for one machine with nothing installed but Python."""
