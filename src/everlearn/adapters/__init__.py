"""The learners in interfaces that are known: scikit-learn's and River's, each loaded when it is asked for."""
