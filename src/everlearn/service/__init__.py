"""The durable learner over HTTP: one writer, predictions from snapshots in memory, tokens, metrics, a dashboard."""
