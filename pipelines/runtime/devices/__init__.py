"""The accelerators: backend, mesh, sharding rules, memory in use, and offloading where there is too little of it."""
