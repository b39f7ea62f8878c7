"""Exports of episodes: OpenTelemetry spans (the extra `otel`)."""
