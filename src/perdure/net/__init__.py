"""The one way to the network. Above: the parts. Below: `core`."""
