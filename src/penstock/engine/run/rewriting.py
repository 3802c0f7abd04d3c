"""Spark rewrites the state of an operator into another number of tasks. Here the rewriting becomes a batch of the
catalog, and a rewriting that was cut off by the end of its driver is finished."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.channels.catalog import Catalog
from penstock.clock import run_time
from penstock.engine.query.context import RunContext
from penstock.engine.spark.java_errors import SPARK_ERRORS
from penstock.engine.spark.state_partitions import repartition_state
from penstock.engine.state.tasks import give_up, record_tasks, under_way
from penstock.monitor.report import BatchReport


def enter_rewriting(context: RunContext, operator: str) -> None:
    """Enter the rewriting in the catalog as a batch without rows. Spark counts it as a batch of its own, and the
    batches of the catalog must be those of Spark."""
    log, channels = context.checkpoint_log(operator), context.channels
    batch, now = log.finished(), run_time()
    last = channels.last_batch(operator)
    if batch > (-1 if last is None else last):
        report = BatchReport(operator, batch, now, now, 0, {}, (), ends=log.ends(batch, of_source=False) or {})
        channels.publish(operator, batch, [], report.as_json(), {})


def finish(spark: SparkSession, context: RunContext, catalog: Catalog) -> str:
    """Finish the repartition that was going on when the driver ended, before any query starts. Returns what was done,
    in words. If the operator's last batch was cut off, Spark had not begun the repartition and cannot begin it now:
    then the operator keeps the tasks that it had. If the operator never began a batch, there is no state to rewrite,
    and Spark would refuse its checkpoint."""
    unfinished = under_way(catalog)
    if unfinished is None:
        return ""
    operator, tasks = unfinished
    try:
        if context.checkpoint_log(operator).planned() >= 0:
            repartition_state(spark, context.checkpoint(operator), tasks)
    except SPARK_ERRORS as error:
        if not was_cut_off(error):
            raise
        give_up(catalog)
        return (
            f'the repartition of "{operator}" into {tasks} tasks had not begun when the driver ended, and is given up'
        )
    enter_rewriting(context, operator)
    record_tasks(catalog, operator, tasks)
    return f'the repartition of "{operator}" into {tasks} tasks was finished'


def was_cut_off(error: Exception) -> bool:
    """Whether Spark refuses a checkpoint because its last batch has no end. Spark has a name of its own for this where
    the last batch is also the first."""
    return "LAST_BATCH_FAILED" in str(error) or "NO_COMMITTED_BATCH" in str(error)
