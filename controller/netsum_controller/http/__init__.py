"""The HTTP endpoint of members and of Prometheus."""
