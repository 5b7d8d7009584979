"""The `twincal` command: builds settings and starts one thing. The only composition root."""
