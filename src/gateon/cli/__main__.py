"""`python -m gateon.cli` runs the program."""

import sys

from . import main

sys.exit(main())
