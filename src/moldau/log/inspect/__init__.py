"""Looking into a data folder from outside, over the Disk port, changing nothing: offline, or beside the broker at work.

`files` sorts out what lies where, `batches` and `indexes` read, `segment`, `partition` and `folder` verify (by way of
`order`, `producers` and `transactions`), `findings` are what they find, `dump` shows, `sizes` adds up.
"""
