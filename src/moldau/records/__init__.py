"""Record batches: header, records, compression, and the checks of Kafka's leader."""
