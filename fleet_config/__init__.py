"""What runs where: the job file, the roles, the tables. Imports no Paddle, no fleetps."""
