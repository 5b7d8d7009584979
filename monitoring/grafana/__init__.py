"""Grafana's dashboards: written here, generated into `dashboards/*.json` by `make dashboards`, and diffed by a test."""
