"""Where Spark is installed: the same Spark that the driver uses."""

from __future__ import annotations

from pathlib import Path


def spark_home() -> Path:
    # Imported late: to know what a cluster looks like needs no pyspark.
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())
