"""The files of a replica of a quorum: its identity, its epoch and vote, its log, and snapshots.

All are in one folder: ``meta.properties`` (:mod:`.directory`), ``quorum-state`` (:mod:`.election`),
``NNNNNNNN.journal`` (:mod:`.log`) and ``OFFSET-EPOCH.checkpoint`` (:mod:`.snapshots`).
"""
