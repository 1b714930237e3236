"""Running a learner on a stream: the loop, the clock, cohorts of seeds on a GPU."""
