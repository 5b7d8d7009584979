"""Postgres and an MQTT broker as children of this process, for one machine with nothing installed but Python."""
