"""Learners with the interfaces of scikit-learn (`adapters.sklearn`) and River (`adapters.river`)."""
