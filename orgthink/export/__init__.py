"""Exports of episodes: OpenTelemetry spans (`spans`, `otlp`; the extra `otel`) and Perfetto traces."""
