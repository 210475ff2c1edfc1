"""The learner: a backbone and its objectives as one module, for pretraining and for a task."""
