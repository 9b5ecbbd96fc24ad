"""KRaft, the Raft of Kafka's controllers."""
