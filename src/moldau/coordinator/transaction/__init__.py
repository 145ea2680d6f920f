"""The transaction coordinator: who writes under a transactional id, and how far its transaction has come."""
