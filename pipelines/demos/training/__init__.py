"""The trainer that made the demo models: any networks, any loss, in parts that can be interrupted."""
