"""Fleets, robots, descriptions and keys, as the database knows them."""
