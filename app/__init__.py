"""twincal: digital-twin calibration for robot fleets."""
