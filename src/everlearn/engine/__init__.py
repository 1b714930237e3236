"""How a learner meets a stream: the loop, the clock, cohorts of seeds on a GPU."""
