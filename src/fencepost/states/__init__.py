"""The state space as tables: every explored state, and every step between them, in Parquet files that any tool can
read.
"""
