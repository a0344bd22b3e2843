"""What must survive us, in SQLite or PostgreSQL: operations, facts, events, decisions, the bill, and who leads."""
