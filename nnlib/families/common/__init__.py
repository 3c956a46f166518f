"""What several families are made of: products of sparse counts, regions, and likeness with a region's own weight."""
