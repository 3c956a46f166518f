"""A run's summary and page."""
