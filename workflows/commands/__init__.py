"""One module per subcommand: plain arguments in, exit code out."""
