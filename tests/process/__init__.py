"""What happens to open readers when processes fork, threads race, and files change under them."""
