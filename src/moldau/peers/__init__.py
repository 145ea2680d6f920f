"""One client of Kafka's protocol over the Net port: connections to brokers, for brokers, simulations and tools."""
