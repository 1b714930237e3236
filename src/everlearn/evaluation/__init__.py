"""The second agent: the evaluator, and the metrics as pure functions of what it measured."""
