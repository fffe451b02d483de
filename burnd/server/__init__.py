"""The socket: accepts clients, checks their requests and answers them."""
