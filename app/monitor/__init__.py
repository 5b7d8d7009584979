"""Drift: live telemetry scored against each robot's active twin, and what follows from it."""
