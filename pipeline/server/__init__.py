"""The service: speakers enrolled and claims verified over HTTP and WebSockets, and a page to do it by speaking."""
