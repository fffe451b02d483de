"""Sessions that programs push over the socket."""
