"""What has nothing to do with networks: arrays, files, memory, processes, progress, threads."""
