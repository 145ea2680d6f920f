"""Who may do what, on Moldau and on Apache Kafka with its StandardAuthorizer."""
