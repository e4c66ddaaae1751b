"""What continues a session that was left: reasons, workers, and the ends of runs that were cut off."""
