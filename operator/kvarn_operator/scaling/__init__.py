"""How many pods a pool should have. Pure: no I/O, no clock; the reconcile and `bench scaling` call `plan`."""
