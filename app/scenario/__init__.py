"""Scenarios: draws from what is known of a robot, for training jobs that must not overfit to one number."""
