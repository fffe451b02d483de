"""The socket: accepts clients, checks their requests against the contract, and answers them."""
