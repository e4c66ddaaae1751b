"""Servers of the Model Context Protocol, as data. Above: the assembly. Below: `core`."""
