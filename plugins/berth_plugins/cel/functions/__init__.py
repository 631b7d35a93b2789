"""What the functions of the environment do."""
