"""Measure the house: how large, deep and tangled the project is, and how much of it its users see."""
