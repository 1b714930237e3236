"""`python -m everlearn` is the command `everlearn`."""

import sys

from everlearn.cli import main

sys.exit(main())
