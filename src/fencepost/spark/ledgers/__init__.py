"""Ledgers and logs as a Spark data source: options, offsets, partitions, rows. Only :mod:`.source` needs PySpark."""
