"""Kvarn's operator for Kubernetes: keeps the pools of each model. `scaling` decides how many pods each has."""
