"""The REST API, on the same port as the page; the page's scripts and other clients use the same contract."""
