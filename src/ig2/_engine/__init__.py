"""The machinery below the methods: opening a network, running it, walking paths. Nothing here is public."""
