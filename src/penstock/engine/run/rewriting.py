"""Spark's rewriting of state into another number of tasks, as a batch of the catalog; and what becomes of one that was
cut off by the end of its driver."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.channels.catalog import Catalog
from penstock.clock import run_time
from penstock.engine.query.frames import Environment
from penstock.engine.spark.state_partitions import repartition_state
from penstock.engine.state.tasks import give_up, record_tasks, under_way
from penstock.monitor.report import BatchReport


def enter_rewriting(environment: Environment, operator: str) -> None:
    """Spark counts the rewriting of state as a batch of its own. It is entered in the catalog as one without rows, so
    that the batches of both are the same."""
    log, channels = environment.checkpoint_log(operator), environment.channels
    batch, now = log.finished(), run_time()
    last = channels.last_batch(operator)
    if batch > (-1 if last is None else last):
        report = BatchReport(operator, batch, now, now, 0, {}, (), ends=log.ends(batch, of_source=False) or {})
        channels.publish(operator, batch, [], report.as_json(), {})


def finish(spark: SparkSession, environment: Environment, catalog: Catalog) -> str:
    """Finish what was going on when the driver ended, before any query starts; what was done about it, in words. If the
    operator's last batch was cut off Spark had not begun, and cannot now: then the operator keeps the tasks it had."""
    unfinished = under_way(catalog)
    if unfinished is None:
        return ""
    operator, tasks = unfinished
    try:
        repartition_state(spark, environment.checkpoint(operator), tasks)
    except (PySparkException, Py4JError) as error:
        if not was_cut_off(error):
            raise
        give_up(catalog)
        return f'the repartition of "{operator}" into {tasks} tasks had not begun, and is given up'
    enter_rewriting(environment, operator)
    record_tasks(catalog, operator, tasks)
    return f'the repartition of "{operator}" into {tasks} tasks was finished'


def was_cut_off(error: Exception) -> bool:
    """Whether Spark refuses a checkpoint because its last batch has no end."""
    return "LAST_BATCH_FAILED" in str(error)
