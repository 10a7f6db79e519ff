"""What the server of forked processes imports last: from then on nobody looks through all that it has imported.

Every training collects garbage, and the pages of whatever the collector looks at would be copied for each process.
"""

import gc

import pytest  # noqa: F401 - what the modules of tests import
import torch  # noqa: F401 - it stands before what is frozen, whatever else was asked for

gc.collect()
gc.freeze()
