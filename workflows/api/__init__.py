"""What `import regiondag` gives: studies, runs and champions, which the commands work on, too."""
