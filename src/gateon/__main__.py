"""`python -m gateon` runs the program."""

import sys

from .cli import main

sys.exit(main())
