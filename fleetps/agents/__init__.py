"""The agents: one per server and worker, and the host of the coordinator. No Paddle here."""
