"""Pictures in folders, or named by a table, become the data files of every region."""
