"""The best items for each example, their scores, and files of both."""
