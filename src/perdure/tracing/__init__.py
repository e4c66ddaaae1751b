"""Those who watch: ready-made watchers. Each is a function of an entry, to be given to an agent as a watcher."""
