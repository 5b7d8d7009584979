"""The twin itself: description, parameters, dynamics, rollout, document. Pure: no I/O libraries."""
