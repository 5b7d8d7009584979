"""Who there is: fleets, robots with their declarations and descriptions, keys, and what was recorded of each robot.

Functions on a connection, which is in a transaction of the caller's: several of them together are one step.
"""
