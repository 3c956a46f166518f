"""`python -m workflows` is `regiondag`."""

import sys

from workflows.cli import main

sys.exit(main())
