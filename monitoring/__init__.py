"""What operators see: dashboards as code, beside Prometheus' scrape configuration and rules."""
