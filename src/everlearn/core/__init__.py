"""The contract of a learner, and what every learner can do."""
