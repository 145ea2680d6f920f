"""Groups of the newer protocol (KIP-848): the coordinator assigns, and members report what they own."""
