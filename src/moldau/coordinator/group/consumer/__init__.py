"""Groups of the newer protocol (KIP-848): the coordinator assigns, and members report what they own.

The way of a heartbeat:

1. `broker/handlers/consumer_group_heartbeat.py` checks its form, and makes a `messages.Beat` of it.
2. `GroupShard.beat` gets it from the coordinator's driver: in the loop, or in a thread where it has much to look at.
3. `events` finds the group or makes it. A classic group is brought over first (`migration`), and members that still
   speak the classic protocol come in by its requests (`classic_members`, `embedded`). The decision grows in an `edit`:
   what one step records, the next one sees in a draft of the group (`overlay`, `holders`).
4. `protocol` finds the member (`group`, `member`), refuses a wrong epoch, and records what it now subscribes to.
5. `evolution` raises the group's epoch where members, subscriptions or topics (`topics`) have changed. Expressions that
   take long are matched aside (`resolver`), and count when they are found.
6. `evolution` has an assignor (`assignors`) compute a new target for all members, if the epoch has gone up and the
   group's assignment interval (`settings`) is over.
7. `reconcile` takes this one member a step towards its target: it gives up first, then takes what is free.
8. The `records` of all that go to `__consumer_offsets` in one append. The group changes when they are applied; the
   answer, with the member's epoch and its partitions if they have changed, leaves when they are committed.

A member that says nothing for its session's time-out is removed by a deadline, which goes the same way from step 5 on.
`describe` shows a group to ConsumerGroupDescribe.
"""
