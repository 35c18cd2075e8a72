"""`python -m gateon.cli` is the program."""

import sys

from . import main

sys.exit(main())
