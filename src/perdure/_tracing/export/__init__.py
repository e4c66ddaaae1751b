"""Exports of what happened: spans and metrics of OpenTelemetry."""
