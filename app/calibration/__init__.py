"""From recordings to a calibrated twin version."""
