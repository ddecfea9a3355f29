"""What runs where: the job file, roles from the environment, tables. No Paddle, no fleetps imports."""
