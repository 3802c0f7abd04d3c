"""For all tests: timings on shared machines say nothing, so no property test has a deadline."""

from hypothesis import settings

settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
