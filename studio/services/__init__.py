"""Services of the app process: the event feed, plans, and periodic work in the background."""
