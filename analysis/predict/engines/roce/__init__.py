"""Messages over RoCE: their bytes on a link, and how queue pairs send them."""
