"""Hypothesis profiles: `default` repeats itself exactly; `soak` looks much further.

HYPOTHESIS_PROFILE=soak python -m pytest tests
"""

import os

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# Exact arithmetic on random tables has no stable duration: no deadline, and generation may be slow.
_COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}

settings.register_profile("default", max_examples=50, derandomize=True, **_COMMON)
settings.register_profile("soak", max_examples=2000, derandomize=False, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

if settings.get_current_profile_name() == "default":
    # Hypothesis also draws from the constants of the modules imported so far, which depend on the
    # tests that ran before in the same process: examples would differ from one run to the next.
    providers._get_local_constants = lambda: providers._local_constants  # none were gathered yet
