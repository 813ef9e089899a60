"""The broker under fire: what it promises about faults, in short here and in full by `make soak`."""
