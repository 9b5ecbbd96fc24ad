"""The state space as a table: every state that was explored, and every step between them, in Parquet files that
anything can read.
"""
