"""All that Penstock knows about Spark beyond its public interfaces, and the session, host and slots made of it.

It is written against Spark 4.3, and tests/spark/test_spark_internals.py tests the tricks one by one. `missing()` in
internals.py looks for what placing bundles needs; where another version lacks it, operators run unplaced (unplaced.py).

1. internals.py, executors(): which executors are alive, and on which host.
2. internals.py, placed_stream(): a streaming source whose partitions and their executors are chosen anew at every
   micro-batch.
3. internals.py, start(): a query whose sink is a Python object; unlike foreachBatch it does not plan the batch a second
   time.
4. internals.py, place_state() and state_location(): on which executor a state partition is to be at the next
   micro-batch, and is now.
5. internals.py, run_on(): a small Python job on executors of one's choice.
6. driver_jvm.py, end_jvm(): PySpark's JVM ends with its session, not with Python.
7. batch_history.py: which executor ran each task of a query's finished batches.
8. internals.py, request_executors() and decommission(): executors come and go by themselves with dynamic allocation
   only; asked for by hand they come and go on any cluster manager.
9. state_partitions.py, repartition_state(): a stopped query's state in another number of partitions; Spark 4.3 has no
   public name for it.
10. stream_plans.py, stateful_nodes() and refusal_of(): what a stream keeps in state, and whether Spark could run it,
    before it is started.
11. hadoop_files.py: files where Spark has its checkpoints, by any URI.
12. internals.py, active_queries(): all queries of all sessions that have not ended, in one call.
13. stream_plans.py, plan_of(): the analysed plan of a DataFrame, as data.
14. driver_jvm.py, start_jvm(): the driver's JVM starts without secrets on its command line.
15. driver_jvm.py, close_callbacks(): nobody but that JVM can call its Python half.
16. split_streams.py: a placed stream of rows that says to Spark's planner that they are split by key, so that Spark
    shuffles nothing; and stream_plans.py, explained(): the physical plan of a stream before it is started. They are
    tested in tests/spark/test_keyed_without_shuffle.py.
17. callback_connections.py: the connection over which a query's thread calls Python ends with the query.
18. java_errors.py, java_log.py, failures.py and refusals.py: what Spark and Py4J raise and log, what their words mean,
    and what Spark says that it cannot do.
19. shuffle_reads.py: what Spark's shuffle brought to executors from other machines, of all queries at once.
20. internals.py, threads_held(): how many tasks run on each executor now, as Spark's scheduler counts them.
"""
