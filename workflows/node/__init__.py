"""What DAGMan's scripts run: PRE proposes, POST settles."""
