"""The coordinator: hands out data, keeps the truth about progress, and answers for people."""
