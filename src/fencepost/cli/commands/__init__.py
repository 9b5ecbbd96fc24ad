"""The commands, one module each. ``add_options(parser)`` declares its options; ``run(args)`` returns the exit code."""
