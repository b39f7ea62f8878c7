"""`python -m orgthink`."""

import sys

from orgthink.cli import main

sys.exit(main())
