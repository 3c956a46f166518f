"""Python imports this by itself when it starts, in every process that the tests of a mutant begin."""

import mutant_finder

mutant_finder.install()
