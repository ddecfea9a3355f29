"""What people see of a job: log lines, live progress, the table of results."""
