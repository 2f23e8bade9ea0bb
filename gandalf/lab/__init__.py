"""The paper's tables and figures as lists of runs, and what their results say."""
