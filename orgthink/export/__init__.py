"""Exports of episodes: orchestration traces, and OpenTelemetry spans (the extra `otel`)."""
