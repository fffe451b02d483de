"""The socket: who may ask, what may be asked, and how it is answered."""
