"""`fleetps logs`: what all processes of a job have written, in the order of time."""
