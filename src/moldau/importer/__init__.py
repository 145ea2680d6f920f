"""Taking over a data folder that Apache Kafka wrote: reading KRaft's metadata, planning, carrying it out."""
