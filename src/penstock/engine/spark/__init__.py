"""All that Penstock knows about Spark beyond its public interfaces, and the session, host and slots made of it."""
