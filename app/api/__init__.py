"""REST: one module a resource."""
