"""What an agent can do: tools that are ready to be given to one. Above: the assembly. Below: `core`."""
