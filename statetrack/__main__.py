"""`python -m statetrack` is the command line."""

import sys

from statetrack.cli import main

sys.exit(main())
