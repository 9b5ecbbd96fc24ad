"""The search: compiles a protocol's steps to tables, explores every state with them, and judges liveness."""
