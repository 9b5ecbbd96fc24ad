"""How fast Spark reads the store, and how closely it follows a writer."""
