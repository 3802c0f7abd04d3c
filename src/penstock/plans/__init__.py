"""How a placement becomes another: plans, where they lead, and the steps that carry them out. Never touches Spark."""
