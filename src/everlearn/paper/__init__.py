"""The paper as data: its experiments and claims, the comparison with its numbers, and the report."""
