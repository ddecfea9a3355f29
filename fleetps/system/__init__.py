"""What one machine offers and demands: processes, ports, signals, files of a run."""
