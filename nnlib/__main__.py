"""`python -m nnlib` is `nnlib`."""

import sys

from nnlib.cli import main

sys.exit(main())
