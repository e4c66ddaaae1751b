"""What the model is told before anybody speaks: project files, roles, skills. Above: the assembly. Below: `core`."""
