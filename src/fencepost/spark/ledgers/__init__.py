"""Ledgers as rows for Spark: what is read, where a query stands, and how the work is divided. Only :mod:`.source` needs
PySpark.
"""
