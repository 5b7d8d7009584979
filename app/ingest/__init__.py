"""From MQTT packets and log files to telemetry rows."""
